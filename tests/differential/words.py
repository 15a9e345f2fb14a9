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

What the earlier commit does not have, a name, a member or a keyword, follows from the commit itself: a case that uses
it runs here alone, and the two versions of this checkout, with the kernel and without, are still compared. So a case
has a new keyword only where its value is not the default. A commit that gives an argument new values which the script
shall draw adds one line to `NEW`:

    New("Windows", "require", when=is_mapping),
"""

import inspect
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


def is_list(value: object) -> bool:
    """Whether a value is a list."""
    return isinstance(value, list)


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
    """Values of an argument that the earlier commit does not take."""

    of: str  # a function, class or method by its dotted path in `ts`
    argument: str | int  # or its position
    when: Callable[[Any], bool]


class NotThereError(Exception):
    """A case needs what the earlier commit does not have."""


Line = Name | Argument | Member | Entry | Field

RENAMED: tuple[Line, ...] = ()

NEW: tuple[New, ...] = (
    New("Windows", "require", when=is_mapping),
    New("Windows", "frequency", when=is_list),
    New("cluster.windows", "require", when=is_mapping),
    New("calendar", 0, when=lambda field: field == "time"),
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
        self.side = side
        self._renamed = renamed
        self._new = new

    def _own(self, line: Line) -> str:
        return line.new if self.side == "here" else line.old

    def name(self, path: str) -> str:
        """The last part of the dotted path of a public name."""
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
        return {self._argument(path, name, value): value for name, value in given.items()}

    def new_values(self, path: str, given: Mapping[str | int, Any]) -> list[str | int]:
        """Keywords, or positions, with values that the earlier commit does not take."""
        lines = [line for line in self._new if line.of == path and line.argument in given]
        return [line.argument for line in lines if line.when(given[line.argument])]

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


def found(thing: Any, own: str, words: Words, path: str) -> Any:
    """A part of the library by its own name."""
    if words.side == "earlier" and not hasattr(thing, own):
        raise NotThereError(path)
    return getattr(thing, own)


class Spoken:
    """A module, class or function of the library, addressed in the words of the script."""

    def __init__(self, thing: Any, words: Words, path: str = "") -> None:
        self.thing = thing
        self._words = words
        self._path = path

    def __getattr__(self, name: str) -> "Spoken":
        path = f"{self._path}.{name}".lstrip(".")
        return Spoken(found(self.thing, self._words.name(path), self._words, path), self._words, path)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call it, with its own words for the keywords."""
        own = self._words.arguments(self._path, named)
        if self._words.side == "earlier":
            odd = self._words.new_values(self._path, dict(enumerate(arguments)) | named)
            odd += own.keys() - inspect.signature(self.thing).parameters
            if odd:
                raise NotThereError(f"{self._path} {odd[0]}")
        return self.thing(*arguments, **own)


def member_of(thing: Any, name: str, words: Words) -> Any:
    """A method or attribute of an object of the library."""
    kinds = [kind.__name__ for kind in type(thing).__mro__]
    path = f"{words.shown_name(kinds[0])}.{plain(name)}"
    one = found(thing, words.member(kinds, name), words, path)
    return Spoken(one, words, path) if callable(one) else one
