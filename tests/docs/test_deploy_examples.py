"""The deployment examples are well formed, their command lines are Tacit's, and they are as closed as they say."""

import configparser
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import typer.main
import yaml

from tacit import errors
from tacit.cli import app

FOLDER = Path(__file__).parents[2] / "examples" / "deploy"
UNITS = sorted(FOLDER.glob("*.service"))


def parsed(words):
    """The values of a Tacit command line; an error if it has an option or argument that there is not."""
    group = typer.main.get_command(app)
    command = group.get_command(None, words[0])
    context = command.make_context(words[0], list(words[1:]))
    return context.params


def compose():
    return yaml.safe_load((FOLDER / "docker-compose.yml").read_text())


def unit(path):
    parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    parser.optionxform = str
    parser.read_string(path.read_text())
    return parser


def services():
    """Those of the compose file that are Tacit's."""
    return {name: one for name, one in compose()["services"].items() if one["image"] == "tacit"}


def command_lines():
    """Every Tacit command line of the examples, as words."""
    units = [shlex.split(unit(path)["Service"]["ExecStart"]) for path in UNITS]
    assert all(words[0].endswith("/tacit") for words in units)
    return [one["command"] for one in services().values()] + [words[1:] for words in units]


def test_the_commands_are_tacits_sites_state_their_limits_and_no_password_is_on_a_command_line():
    for words in command_lines():
        options = parsed(words)
        assert options["health"] == 8103
        assert not re.search(r"://[^/@ ]*:[^/@ ]*@|password", " ".join(words))
        if words[0] == "join":
            assert options["max_epsilon"]
            assert options["run"]
            assert not any(options[name] for name in ("non_private", "insecure", "share_metrics"))
    assert sum(words[0] == "join" for words in command_lines()) == 3


def test_a_command_that_is_none_of_tacits_would_be_found():
    words = services()["harbour"]["command"]
    with pytest.raises(Exception, match="No such option"):
        parsed([*words, "--max-epsilom=3"])
    with pytest.raises(AttributeError):
        parsed(["jion", *words[1:]])  # there is no such command


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_a_unit_restarts_after_passing_failures_only_and_writes_to_its_own_folders_only(path):
    service = unit(path)["Service"]
    stays_down = {int(code) for code in service["RestartPreventExitStatus"].split()}
    kinds = (errors.UsageError, errors.DataError, errors.PrivacyRefused, errors.TamperingFound)
    assert stays_down == {kind.exit_code for kind in kinds}
    assert errors.PeerFailed.exit_code not in stays_down
    assert service["Restart"] == "on-failure"
    assert (service["User"], service["UMask"], service["StateDirectoryMode"]) == ("tacit", "0077", "0700")
    assert (service["ProtectSystem"], service["NoNewPrivileges"]) == ("strict", "yes")
    assert service["CapabilityBoundingSet"] == ""
    options = parsed(shlex.split(service["ExecStart"])[1:])
    written = [options[name] for name in ("state", "resume", "keys") if options.get(name) is not None]
    assert written
    assert all(place.is_relative_to(f"/var/lib/{service['StateDirectory']}") for place in written)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_systemd_finds_nothing_wrong_with_a_unit(path, tmp_path):
    def said(text):
        copy = tmp_path / path.name
        copy.write_text(text)
        found = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True).stderr
        return [line for line in found.splitlines() if path.name in line]

    text = path.read_text().replace("/opt/tacit/bin/tacit", shutil.which("true"))  # any program that is there
    assert said(text) == []
    assert said(text.replace("RestartSec=15", "RestartSec=soon"))


def test_containers_are_closed_and_nothing_listens_at_a_site():
    for name, one in services().items():
        assert one["read_only"] is True
        assert one["cap_drop"] == ["ALL"]
        assert one["user"] == "10001:10001"
        assert ("ports" in one) == (name == "coordinator")
    file = compose()
    assert file["services"]["postgres"]["networks"] == ["market"]
    assert file["networks"]["market"]["internal"] is True
    assert services()["coordinator"]["networks"] == ["federation"]


def test_all_that_the_compose_file_names_is_declared_in_it():
    file = compose()
    assert set(file) - {"name", "services", "secrets", "networks", "volumes"} == {"x-tacit", "x-health"}
    for one in file["services"].values():
        assert set(one["networks"]) <= set(file["networks"])
        assert set(one.get("secrets", ())) <= set(file["secrets"])
        assert set(one.get("depends_on", ())) <= set(file["services"])
        sources = [volume.split(":")[0] for volume in one["volumes"]]
        assert all(source.startswith("./") or source in file["volumes"] for source in sources)


def test_a_site_is_given_its_own_kit_alone():
    for name, number in (("harbour", 1), ("market", 2)):
        kits = [volume for volume in services()[name]["volumes"] if ".kit" in volume]
        assert kits == [f"./kits/party-{number}.kit:/kits/party-{number}.kit:ro"]
        assert not [volume for volume in services()[name]["volumes"] if "keys" in volume]
    assert [name for name, one in services().items() if "./keys:/keys" in one["volumes"]] == ["coordinator"]


def test_the_image_is_made_from_this_project_for_a_user_without_rights():
    lines = (FOLDER / "Dockerfile").read_text().splitlines()
    copied = [word for line in lines if re.match(r"COPY (?!--from)", line) for word in line.split()[1:-1]]
    assert all((FOLDER.parents[1] / name).exists() for name in copied)
    assert {"pyproject.toml", "README.md", "LICENSE", "src"} <= set(copied)
    assert [line for line in lines if line.startswith("USER ")] == ["USER 10001:10001"]
    assert lines.index("USER 10001:10001") < lines.index('ENTRYPOINT ["tacit"]')


def test_the_files_beside_the_compose_file_are_those_that_the_page_names():
    page = (FOLDER.parents[1] / "docs" / "how-to" / "deploy.md").read_text(encoding="utf-8")
    mounts = [volume.split(":")[0] for one in services().values() for volume in one["volumes"]]
    beside = {Path(source).parts[0] for source in mounts if source.startswith("./")}
    beside |= {Path(one["file"]).name for one in compose()["secrets"].values()}
    assert beside == {"keys", "kits", "run.toml", "books.csv", "harbour.csv", "market-pgpass", "postgres-password"}
    assert all(f"`{name}`" in page for name in beside)
