"""Plug-ins by name: Tacit's own, and those of other installed packages, which add one by an entry point:

    [project.entry-points."tacit.methods"]
    offset = "offset_package:OFFSET"

Names are read from the metadata of installed packages; a plug-in is imported when it is first used.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, MutableMapping, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from tacit.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Thing = TypeVar("Thing")

#: The distribution whose entry points no other package can replace.
OURS = "tacit"


class Registry(MutableMapping[str, Thing], Generic[Thing]):
    """Plug-ins of one kind by name, each imported when it is first used.

    Tacit's own names cannot be replaced: another package's claim to one is ignored, with a warning. A name that two
    other packages claim is refused when it is used. For a test, `registry[name] = thing` adds one in this process only.

    Parameters
    ----------
    group : of entry points, such as "tacit.methods"
    what : the kind's name in messages, such as "method"
    kind : the class of the plug-ins; `type` where they are classes themselves
    own : Tacit's own names, in the order in which they are listed
    """

    def __init__(self, group: str, what: str, kind: type, own: Sequence[str] = ()) -> None:
        self.group, self.what, self.kind, self.own = group, what, kind, tuple(own)
        self._found: dict[str, list[EntryPoint]] | None = None
        self._loaded: dict[str, Thing] = {}
        self._added: dict[str, Thing] = {}

    def find(self, name: str) -> Thing:
        """The plug-in of that name, or one sentence that explains why there is none."""
        if name not in self:
            raise UsageError(
                f'There is no {self.what} "{name[:100]}".{did_you_mean(name, self)} '
                f"Known {self.what}s: {', '.join(self)}; install the package that provides another one."
            )
        return self[name]

    def working(self) -> dict[str, Thing]:
        """All of them, imported, except those of broken packages."""
        found = {}
        for name in self:
            try:
                found[name] = self[name]
            except UsageError:
                if name in self.own:
                    raise
        return found

    def origin(self, name: str) -> str:
        """The installed package of a name, such as "tacit 0.1.0"; "this process" where a test added it."""
        return "this process" if name in self._added else _package(self._claims(name)[0])

    def __getitem__(self, name: str) -> Thing:
        if name in self._added:
            return self._added[name]
        if name not in self._loaded:
            if name not in self:
                raise KeyError(name)
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def __setitem__(self, name: str, thing: Thing) -> None:
        self._added[name] = thing

    def __delitem__(self, name: str) -> None:
        del self._added[name]

    def __contains__(self, name: object) -> bool:
        return name in self._added or name in self.own or name in self._scan()

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self.own, *sorted(self._scan()), *self._added)))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def _scan(self) -> dict[str, list[EntryPoint]]:
        """Who claims which name; read once."""
        if self._found is None:
            from importlib.metadata import entry_points

            self._found = {}
            for entry in entry_points(group=self.group):
                self._found.setdefault(entry.name, []).append(entry)
        return self._found

    def _claims(self, name: str) -> list[EntryPoint]:
        """The entry points for a name that count: Tacit's alone, where it is one of Tacit's."""
        claims = self._scan().get(name, [])
        if name not in self.own:
            return claims
        ours = [entry for entry in claims if entry.dist is not None and entry.dist.name == OURS]
        if not ours:
            raise self._outdated(name)
        for entry in claims:
            if entry not in ours:
                warnings.warn(
                    f'The package {_package(entry)} claims the {self.what} "{name}", which is Tacit\'s own and cannot '
                    "be replaced; its claim is ignored.",
                    stacklevel=2,
                )
        return ours[:1]

    def _load(self, name: str) -> Thing:
        entry, *others = self._claims(name)
        if others:
            raise UsageError(
                f'Several installed packages provide a {self.what} "{name}": '
                f"{', '.join(_package(one) for one in (entry, *others))}; uninstall all but one."
            )
        try:
            thing: Thing = entry.load()
        except Exception as error:
            if name not in self.own:
                raise UsageError(
                    f'The {self.what} "{name}" of the package {_package(entry)} cannot be imported: '
                    f"{type(error).__name__}: {str(error)[:300].rstrip('.')}; install the package again, or remove it."
                ) from error
            if not _moved(error, entry):
                raise
            raise self._outdated(name) from error
        if not isinstance(thing, self.kind):
            raise UsageError(
                f'The {self.what} "{name}" of the package {_package(entry)} is a {type(thing).__name__}, and should be '
                f"a {self.kind.__name__}; correct its entry point {entry.value}."
            )
        called = getattr(thing, "name", name)
        if called != name:
            raise UsageError(
                f'The package {_package(entry)} provides the {self.what} "{called}" as "{name}"; give its entry point '
                "the same name."
            )
        return thing

    def _outdated(self, name: str) -> UsageError:
        return UsageError(
            f'The {self.what} "{name}" is in Tacit\'s code and not in the list made when it was installed, which is '
            "older; run `make setup` in a checkout, or install Tacit again."
        )


def _package(entry: EntryPoint) -> str:
    return "without a name" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"


def _moved(error: Exception, entry: EntryPoint) -> bool:
    """Whether an entry point names a place that is no longer there: a module, or a name in one."""
    if isinstance(error, ModuleNotFoundError):
        return error.name is not None and f"{entry.module}.".startswith(f"{error.name}.")
    return isinstance(error, AttributeError) and getattr(error, "name", None) == entry.attr
