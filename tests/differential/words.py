"""What the public words of this checkout are called at the earlier commit.

A commit that renames a public word adds one line to `RENAMED`, the old word before the new one:

    Name("Pack", "PackSequences"),                               # a class, function or exception
    Argument("load", "repeated", "duplicates"),                  # a keyword
    Argument("Loader", "shuffle", "order", when=is_order),       # a keyword, for some of its values
    Argument("Loader", "sampler", "order", when=is_ids),
    Argument("cluster.shard", "repeated", "duplicates"),
    Member("Scaler", "undo", "inverse(batch)"),                  # a method; the brackets tell two meanings apart
    Member("Loader", "windows", "dataset"),                      # an attribute
    Entry(".begin", ".start"),                                   # the end of the name of an entry of a batch
    Field("count", "epoch_size"),                                # a key of a state or a fingerprint

The script may use either word of a line: each side gets its own. What it records has the new ones on both sides.

A commit that adds a public word which the script shall draw adds one line to `NEW`:

    New("Windows", "stride_offset", same=0),                     # a keyword; 0 is what windows were before
    New("Windows", "require", when=is_mapping),                  # new values of a keyword
    New("ByTime"),                                               # a class or function

The earlier commit is not given a new keyword that has the value `same`. A case with any other value, or with a new
name, runs here alone: the two versions of this checkout, with the kernel and without, are still compared.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Side = Literal["earlier", "here"]


def is_order(value: object) -> bool:
    """Whether a value is an order such as `ts.Blocks`, neither a truth value nor ids."""
    return type(value).__module__.startswith("tensorstash.")


def is_ids(value: object) -> bool:
    """Whether a value gives the ids of windows."""
    return not isinstance(value, bool) and not is_order(value)


def is_mapping(value: object) -> bool:
    """Whether a value is a mapping."""
    return isinstance(value, Mapping)


def _always(_: object) -> bool:
    return True


@dataclass(frozen=True)
class Name:
    """A public class, function or exception, by its dotted path in `ts`."""

    old: str
    new: str


@dataclass(frozen=True)
class Argument:
    """A keyword of a function, a class or a method, by its dotted path in `ts` with the new names."""

    of: str
    old: str
    new: str
    when: Callable[[Any], bool] = _always


@dataclass(frozen=True)
class Member:
    """A method or an attribute of the objects of a class, by the new name of the class."""

    of: str
    old: str
    new: str


@dataclass(frozen=True)
class Entry:
    """The name of an entry of a batch, or from a dot on the end of one."""

    old: str
    new: str


@dataclass(frozen=True)
class Field:
    """A key of a state or a fingerprint, at any depth."""

    old: str
    new: str


@dataclass(frozen=True)
class New:
    """A public word that the earlier commit does not have."""

    of: str  # a function, class or method by its dotted path in `ts`
    argument: str | None = None  # a keyword of it; `None`: the whole of it is new
    same: Any = None  # the value of the keyword with which all is as before
    when: Callable[[Any], bool] = _always  # for which of its values it is new


class NotThereError(Exception):
    """A case needs what the earlier commit does not have."""


Line = Name | Argument | Member | Entry | Field

RENAMED: tuple[Line, ...] = ()

NEW: tuple[New, ...] = (
    New("Windows", "align", same="start"),
    New("Windows", "require", when=is_mapping),
    New("PerEntity"),
    New("Windows.split_last"),
    New("Windows.cover"),
    New("Windows", "max_slots", same=None),
    New("Windows.of"),
    New("Windows.folds", "per"),
    New("Windows.folds", "of"),
    New("load", "frequency"),
    New("cluster.windows", "align", same="start"),
    New("cluster.windows", "require", when=is_mapping),
    New("cluster.windows", "max_slots", same=None),
)

# keys of states that the earlier commit does not have, and why they came; neither side shows them
ADDED: dict[str, str] = {
    "draws": "of a mix, how many windows of each component came before its weights held",
    "weights": "of a mix, which may change; they stood in its fingerprint",
}


def plain(word: str) -> str:
    """A word without the brackets that tell its meaning."""
    return word.partition("(")[0]


class Words:
    """The words of one side."""

    def __init__(self, side: Side, renamed: Collection[Line] = RENAMED, new: Collection[New] = NEW) -> None:
        self._side = side
        self._renamed = renamed
        self._absent = new if side == "earlier" else ()

    def _own(self, line: Line) -> str:
        return line.new if self._side == "here" else line.old

    def name(self, path: str) -> str:
        """The last part of the dotted path of a public name."""
        if any(line.of == path and line.argument is None for line in self._absent):
            raise NotThereError(path)
        for line in self._renamed:
            if isinstance(line, Name) and path in (line.old, line.new):
                return self._own(line).rpartition(".")[2]
        return path.rpartition(".")[2]

    def shown_name(self, name: str) -> str:
        """The new word of a public name, such as that of an exception."""
        lines = (line for line in self._renamed if isinstance(line, Name))
        return {line.old.rpartition(".")[2]: line.new.rpartition(".")[2] for line in lines}.get(name, name)

    def arguments(self, path: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Keywords of a function or class."""
        lines = {line.argument: line for line in self._absent if line.of == path and line.argument is not None}
        absent = {name: line.same for name, line in lines.items() if name in given and line.when(given[name])}
        if odd := [name for name, value in given.items() if name in absent and value != absent[name]]:
            raise NotThereError(f"{path} {odd[0]}")
        given = {name: value for name, value in given.items() if name not in absent}
        return {self._argument(path, name, value): value for name, value in given.items()}

    def _argument(self, path: str, name: str, value: Any) -> str:
        for line in self._renamed:
            if isinstance(line, Argument) and line.of == path and name in (line.old, line.new) and line.when(value):
                return self._own(line)
        return name

    def member(self, kinds: Collection[str], name: str) -> str:
        """A method or attribute of an object whose class and its bases have these names."""
        shown = {self.shown_name(kind) for kind in kinds}
        for line in self._renamed:
            if isinstance(line, Member) and line.of in shown and name in (line.old, line.new):
                return plain(self._own(line))
        return plain(name)

    def entry(self, name: str) -> str:
        """The new word of an entry of a batch."""
        for line in self._renamed:
            if isinstance(line, Entry) and (name == line.old or (line.old[0] == "." and name.endswith(line.old))):
                return name.removesuffix(line.old) + line.new
        return name

    def fields(self, value: Any) -> Any:
        """A state or fingerprint with the new words of its keys."""
        if isinstance(value, Mapping):
            new = {line.old: line.new for line in self._renamed if isinstance(line, Field)}
            return {new.get(key, key): self.fields(inside) for key, inside in value.items() if key not in ADDED}
        if isinstance(value, (list, tuple)):
            return [self.fields(inside) for inside in value]
        return value


class Spoken:
    """A module, class or function of the library, addressed in the words of the script."""

    def __init__(self, thing: Any, words: Words, path: str = "") -> None:
        self.thing = thing
        self._words = words
        self._path = path

    def __getattr__(self, name: str) -> "Spoken":
        path = f"{self._path}.{name}".lstrip(".")
        return Spoken(getattr(self.thing, self._words.name(path)), self._words, path)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call it, with its own words for the keywords."""
        return self.thing(*arguments, **self._words.arguments(self._path, named))


def member_of(thing: Any, name: str, words: Words) -> Any:
    """A method or attribute of an object of the library."""
    kinds = [kind.__name__ for kind in type(thing).__mro__]
    found = getattr(thing, words.member(kinds, name))
    paths = (f"{words.shown_name(kind)}.{plain(name)}" for kind in kinds)
    return Spoken(found, words, next(paths)) if callable(found) else found
