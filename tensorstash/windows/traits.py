"""What stashes must have in common for their windows to mean the same: in a mix, and on other data."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from tensorstash.common.text import told
from tensorstash.errors import SchemaError
from tensorstash.stash.stash import Stash
from tensorstash.windows.identity import clock_of, tables_of
from tensorstash.windows.meaning import OPTIONAL, TRAITS, meaning, plain
from tensorstash.windows.placement import Placement


class Trait(NamedTuple):
    """A property that stashes must share."""

    text: str
    value: Any
    remedy: str
    shown: Callable[[], list[Any]] | None = None  # in place of the value
    grows: bool = False  # whether it is a vocabulary that `like=` continues

    @property
    def told(self) -> str:
        """The value for a message."""
        return told(self.value if self.shown is None else self.shown())


def column_traits(stash: Stash, name: str, meanings: Mapping[str, Any], called: str) -> Iterator[Trait]:
    """The traits of a column, from what `meaning` says of it, and what it is called."""
    for trait, (text, remedy) in TRAITS.items():
        value = meanings.get(trait, "number" if trait == "kind" else None)
        is_vocabulary = trait == "vocabulary" and trait in meanings
        shown = partial(stash.vocabulary, name) if is_vocabulary else None
        grows = is_vocabulary and stash.about(name).unknown is None  # else unknown values have the next code
        if trait not in OPTIONAL or trait in meanings:
            yield Trait(f"{text} of {called!r}", value, remedy, shown, grows)


def clock_traits(clock: Mapping[str, Any]) -> Iterator[Trait]:
    """The unit and zone of times, from what `clock_of` says of them."""
    convert = "Convert the times of one before loading, such as with .dt.{} of polars."
    clocks = {"": clock} | {f" {key}": times for key, times in clock.items() if key.startswith("of ")}
    for whose, times in clocks.items():
        yield Trait(f"unit of known times{whose}", times.get("known unit"), convert.format("cast_time_unit('us')"))
        yield Trait(f"unit of times{whose}", times.get("unit"), convert.format("cast_time_unit('us')"))
        yield Trait(f"zone of times{whose}", times.get("zone"), convert.format("convert_time_zone('UTC')"))


def static_trait(names: Mapping[str, Any]) -> Trait:
    """The names of static columns."""
    return Trait("static columns", sorted(names), "Load both with the same static=.")


def check_same(placement: Placement, stash: Stash, tables: Mapping[str, Stash]) -> None:
    """Raise unless what the windows of a placement show means the same in another stash.

    A vocabulary may be longer there, because `like=` puts new texts behind the others.
    """
    columns = {"": {column: None for span in placement.slot_spans for column in span.columns}}
    for part in placement.time_spans:
        columns.setdefault(part.table.name or "", {}).update((span.column, None) for span in part.spans)
    before, after = {"": placement.stash, **tables_of(placement)}, {"": stash, **tables}
    for table, names in columns.items():
        _check_same(before[table], after[table], [*names], table)


def _check_same(before: Stash, after: Stash, columns: Sequence[str], table: str) -> None:
    """Raise unless columns of a table, or without a name of the windows' own stash, mean the same in another one."""
    for name in columns:
        after[name]  # raises for a column that is missing
    both = columns if table else (*columns, *(before.static.keys() & after.static.keys()))
    # a scaled copy, in any dtype, may take the place of a stash, but not the other way
    scaled = {name for name in both if after.about(name).is_scaled and not before.about(name).is_scaled}
    there = {trait.text: trait for trait in _traits(after, columns, table, scaled)}
    for trait in _traits(before, columns, table, scaled):
        other = there.get(trait.text, trait)
        if trait.value != other.value and not _continues(trait, other):
            raise SchemaError(
                f"Windows of other data need the same {trait.text}; the stash of these windows has {trait.told}, the "
                f"other one has {other.told}. {trait.remedy}"
            )


def _traits(stash: Stash, columns: Sequence[str], table: str, scaled: Collection[str]) -> Iterator[Trait]:
    if not table:
        yield static_trait(stash.static)
    for name in columns if table else (*columns, *stash.static):
        found = {"empty": plain(stash.about(name).empty), **meaning(stash, name)}
        if name in scaled:
            found |= {"type": None, "scaling": None}
        called = f"{table}.{name}" if table else name
        yield from column_traits(stash, name, found, called)
        yield from _source_trait(stash, name, called)
    yield from clock_traits({f"of {table}": clock_of(stash)} if table else clock_of(stash))


def _source_trait(stash: Stash, name: str, called: str) -> Iterator[Trait]:
    """The source of a column that is one column of it, unchanged. An expression is how other data are made alike."""
    about = stash.about(name)
    source, *more = about.members
    if not (more or about.calendar or about.is_validity or 'col("' in source):  # as in printed expressions
        yield Trait(
            f"source column of {called!r}",
            source,
            f"Load it with columns={{{name!r}: {source!r}}}; where that column has another name, rename it before: "
            f"frame.rename({{...: {source!r}}}).",
        )


def _continues(trait: Trait, other: Trait) -> bool:
    """Whether a vocabulary begins with the texts of another one, so that these have the same codes in both."""
    if not (trait.grows and other.grows and trait.shown and other.shown):
        return False
    known, names = trait.shown(), other.shown()
    return len(known) < len(names) and names[: len(known)] == known
