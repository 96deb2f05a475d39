"""A run file, checked and planned before any data is read."""

from collections.abc import Sequence
from pathlib import Path

from tacit import aggregation as aggregations
from tacit.config import RunFile
from tacit.data.public_facts import PUBLISHED, PublicFacts, public_facts
from tacit.data.ratings import Feedback
from tacit.errors import DataError, PrivacyRefused, UsageError
from tacit.federation import Facts
from tacit.federation.role import combine_roles
from tacit.methods import Method, Parameters, chosen, find
from tacit.partition import Setting
from tacit.partition.attribute import side_with
from tacit.partition.divide import WAYS
from tacit.prepare.plan import Plan, plan_run
from tacit.prepare.prepared import PreparedRun, check_aggregation


def method_of(file: RunFile) -> tuple[Method, Parameters]:
    """The method and its parameters; refuses what no data and no other parties could correct."""
    method, parameters = chosen(file.method)
    check_aggregation(file.aggregation, seeded(file))
    if file.engine.seeded is False and file.privacy is None:
        raise UsageError("[engine] seeded = false needs [privacy]: a run without noise draws everything from its seed.")
    if not seeded(file) and file.aggregation.signed and file.engine.name == "inprocess":
        raise PrivacyRefused(
            "[aggregation] signed = true takes the parties' signing keys from the seed here, so it is for simulations; "
            "leave out signed, or [engine] seeded = false."
        )
    return method, parameters


def check(file: RunFile, setting: Setting | None = None) -> tuple[Method, Parameters]:
    """Everything that can be refused before ratings are read; `setting` is the run's, if not the run file's own."""
    expected_plan(file, setting)
    return method_of(file)


def expected_plan(file: RunFile, setting: Setting | None = None) -> Plan | None:
    """The plan that the run file alone allows, found affordable; None for NON-PRIVATE."""
    method, parameters = method_of(file)
    if file.privacy is None:
        return None
    made = plan(file, method, parameters, setting)
    made.check_budget(file.privacy)
    return made


def roles_of(file: RunFile, setting: Setting, parties: int) -> tuple[str, ...]:
    """The roles that a run needs in addition to its parties, by the code that is installed here."""
    method, _parameters = method_of(file)
    how = aggregations.made(setting, parties, file.aggregation)
    return tuple(combine_roles(method.sides_in(setting, Feedback(file.data.feedback)).roles, how.roles))


def read(path: Path, changes: Sequence[str] = (), seed: int | None = None) -> tuple[RunFile, str | None]:
    """A run file with `changes` made to it, and a note where these replace the file's method.

    Keys that only the file's own method knows are dropped; those in `changes` stay, and are checked.
    """
    file = RunFile.read(path, changes, seed)
    keys = [change.partition("=")[0].replace(" ", "") for change in changes]
    before = RunFile.read(path).method.get("name") if "method.name" in keys else file.method.get("name")
    if before == file.method.get("name"):
        return file, None
    fits = {"name", *find(str(file.method["name"])).parameters.model_fields}
    gone = [key for key in file.method if key not in fits and f"method.{key}" not in keys]
    if not gone:
        return file, None
    kept = {key: value for key, value in file.method.items() if key not in gone}
    note = f"[method] is now {file.method['name']}, which has no {', '.join(gone)}; these keys of {before} are ignored."
    return file.model_copy(update={"method": kept}), note


def seeded(file: RunFile) -> bool:
    """Whether private draws come from the seed: in one process unless the file says otherwise, else only if it does."""
    return file.engine.name == "inprocess" if file.engine.seeded is None else file.engine.seeded


def stops(file: RunFile) -> bool:
    """Whether one party's refusal ends a run, instead of leaving it to the others."""
    return file.privacy is not None and file.privacy.on_refusal == "stop"


def setting_of(file: RunFile) -> Setting:
    """The setting of a deployed run, by [partition] alone; a column other than the genre is taken for one of users."""
    known = {"item": Setting.VERTICAL, "genre": Setting.VERTICAL, "device": Setting.DEVICE}
    return known.get(file.partition.by, Setting.HORIZONTAL)


def setting_in_data(file: RunFile) -> Setting | None:
    """The setting of a run on the run file's own data; where [partition] names a column, from the tables' columns.

    No rating is read. None where neither users nor items have such a column, and for NON-PRIVATE, which has no plan.
    """
    from tacit.data.load import side_columns

    by, data = file.partition.by, file.data
    if file.privacy is None or by in WAYS:
        return None if file.privacy is None else setting_of(file)
    try:
        columns = side_columns(data.source, data.user_table, data.item_table)
    except DataError as error:
        raise DataError(
            f'Whether [partition] by = "{by}" divides users or items is read off the data: {error}'
        ) from None
    found = side_with(by, columns)
    return None if found is None else {"user": Setting.HORIZONTAL, "item": Setting.VERTICAL}[found[0]]


def plan(
    file: RunFile,
    method: Method,
    parameters: Parameters,
    setting: Setting | None = None,
    parties: int | None = None,
    facts: PublicFacts | None = None,
) -> Plan:
    """What a private run will ask, add and cost, from public facts alone: those given, or those of the run file."""
    if file.privacy is None:
        raise UsageError("The run file has no [privacy] section, so there is nothing to plan; the run is NON-PRIVATE.")
    facts, setting = facts or _declared(file), setting or setting_of(file)
    if setting not in method.sides:
        raise method.wrong_setting(setting)
    parties = parties or (facts.users if setting is Setting.DEVICE else file.partition.into or 10)
    return plan_run(method, parameters, setting, parties, facts, file.privacy, file.aggregation, seeded(file))


def _declared(file: RunFile) -> PublicFacts:
    """The public facts; where some are missing because the data is not there, that is said first."""
    from tacit.data.load import check_source

    try:
        return public_facts(file.data, file.public, file.seed)
    except UsageError:
        if file.engine.name == "inprocess" and file.data.source not in PUBLISHED:  # else the data is at the sites
            check_source(file.data.source)
        raise


def prepared(
    file: RunFile, facts: Facts, public: PublicFacts | None = None, run: str = "", expected: Plan | None = None
) -> PreparedRun:
    """The run of a run file among the parties of `facts`, with these `public` facts and `expected_plan` where given."""
    method, parameters = method_of(file)
    if file.privacy is not None:
        public = public or public_facts(file.data, file.public, file.seed)
    return PreparedRun.of(
        method,
        parameters,
        facts,
        privacy=file.privacy,
        aggregation=file.aggregation,
        public=public,
        seeded=seeded(file),
        run=run,
        expected=expected,
    )
