"""The stash: a read-only dict of column tensors over one segment, grouped by entity and ordered by time."""

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import torch
from numpy.typing import NDArray

from tensorstash.columns.column import Column
from tensorstash.columns.name_list import Names, Texts
from tensorstash.columns.names import check_key
from tensorstash.common.checks import path_of
from tensorstash.common.clock import Clock, epoch_hint
from tensorstash.common.keywords import made_by
from tensorstash.common.public import members
from tensorstash.errors import ColumnError, unknown
from tensorstash.segments.directory import check_label
from tensorstash.segments.on_disk import save
from tensorstash.segments.publish import share_copy
from tensorstash.segments.segment import Segment
from tensorstash.stash.header import checked_offsets, info_of, read_names, times_checksum
from tensorstash.stash.printed import as_html, as_text
from tensorstash.stash.without_rows import without_rows

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa


@made_by("ts.load(source), ts.open(path) or ts.attach(label)", Segment)
class Stash(Mapping[str, torch.Tensor]):
    """The loaded columns: a `Mapping` from name to tensor, first dimension rows.

    Rows are grouped by entity, the entities in ascending order, and ordered by time within each, or by time and known
    time as `is_by_known` says. `ts.load`, `ts.open` and `ts.attach` return one. The tensors are mapped copy-on-write:
    only this process sees its in-place writes, and they never reach the file. Text columns hold int32 codes into
    `vocabulary(name)`, whose texts ascend, or -1 for a missing text. A vocabulary that was given to `load` keeps its
    order, and the code of unknown values is its length.

    Attributes:
        rows: the number of rows of all entities together.

    Example:
        >>> import tensorstash as ts
        >>> data = {"shop": ["B", "A", "B"], "day": [2, 1, 1], "sold": [7.0, 5.0, 6.0], "sky": ["sun", "sun", None]}
        >>> stash = ts.load(data, ["sold", "sky"], entity="shop", time="day")
        >>> stash["sold"], stash.entities, stash.offsets
        (tensor([5., 6., 7.], dtype=torch.float64), ['A', 'B'], tensor([0, 1, 3]))
        >>> [*stash], stash.rows, stash.time.tolist(), stash["sky"].tolist(), stash.vocabulary("sky")
        (['sold', 'sky'], 3, [1, 1, 2], [0, -1, 0], ['sun'])
    """

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self._kept_names: dict[str | None, Names] = {}
        self._tensors: dict[str, torch.Tensor] = {}  # made on first use: hundreds take longer than attaching
        self.info = info = info_of(segment)
        self._names = {column.name: segment.tensors[column.name] for column in info.columns}
        self._columns = {column.name: column for column in (*info.columns, *info.static)}
        self.rows: int = info.rows

    def __getitem__(self, name: str) -> torch.Tensor:
        """The values of a column, `(rows, ...)`, for a pack `(rows, k)`; nothing is copied.

        Args:
            name: the column. Static columns are in `static`.

        Raises:
            ColumnError: no such column.
        """
        check_key(name)
        tensor = self._tensors.get(name)
        if tensor is None:
            if name not in self._names:
                raise unknown(name, self, "the stash")
            tensor = self._tensors.setdefault(name, self.segment.tensor(name))
        return tensor

    def __contains__(self, name: object) -> bool:
        check_key(name)
        return name in self._names

    # a stash equals only itself: a comparison of tensors would have no truth value
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    __dir__ = members

    def __len__(self) -> int:
        return len(self._names)

    @property
    def nbytes(self) -> int:
        """Bytes of the columns, without time, static columns, names and padding."""
        return sum(tensor.nbytes for tensor in self.values())

    @property
    def path(self) -> str | None:
        """The file of a shared or opened stash, which `safetensors.safe_open` reads too; `None` for a private one."""
        return self.segment.path

    def private_bytes(self) -> int | None:
        """Bytes of the pages that this process holds because it wrote into the tensors; `None` on macOS.

        Example:
            >>> import tensorstash as ts
            >>> stash = ts.load({"y": [1.0, 2.0]})
            >>> stash["y"][0] = 5.0
            >>> stash.private_bytes() in (4096, None)
            True
        """
        return self.segment.private_bytes()

    @cached_property
    def entities(self) -> list[Any]:
        """The entities in the order of their rows: names, tuples of several columns, or `[None]` without a column."""
        return [*self.names()] if self.entity_names else [None]

    def entity_values(self, name: str) -> "NDArray[Any] | list[str]":
        """The values of the entities in one of their columns, in the order of `entities`.

        Args:
            name: one of `entity_names`.

        Returns:
            An array `(entities,)` of integers, or a list of texts.

        Raises:
            ColumnError: no such column of the entities.

        Example:
            >>> import tensorstash as ts
            >>> sales = {"shop": ["A", "A", "B"], "item": [7, 8, 7], "sold": [1, 2, 3]}
            >>> stash = ts.load(sales, ["sold"], entity=["shop", "item"])
            >>> stash.entities, stash.entity_values("item").tolist()
            ([('A', 7), ('A', 8), ('B', 7)], [7, 8, 7])
        """
        if not isinstance(name, str) or name not in self.entity_names:
            raise unknown(name, self.entity_names, "the stash", "entity column")
        part = self.names().parts[self.entity_names.index(name)]
        return part.tolist() if isinstance(part, Texts) else part

    def names(self, column: str | None = None) -> Names:
        """The entities, or the vocabulary of a column; objects are made only of those that are asked for."""
        if column not in self._kept_names:
            is_single = column is not None or isinstance(self.info.entity, str)
            key = "__entities" if column is None else f"{column}.__vocabulary"
            keys = [key] if is_single else [f"{key}.{k}" for k in range(len(self.entity_names))]
            parts = tuple(read_names(self.segment, key) for key in keys)
            self._kept_names[column] = Names(parts, are_tuples=not is_single)
        return self._kept_names[column]

    def entity_at(self, number: int) -> Any:
        """The entity of a number, as in `entities`, of which no list is made."""
        return self.names()[number] if self.entity_names else None

    @property
    def entity_names(self) -> tuple[str, ...]:
        """The source columns of the entities."""
        name = self.info.entity
        return () if name is None else (name,) if isinstance(name, str) else name

    @cached_property
    def static(self) -> dict[str, torch.Tensor]:
        """The columns that were loaded as static: tensors `(entities, ...)`; row k belongs to `entities[k]`."""
        return {column.name: self.segment.blob(column.name) for column in self.info.static}

    @cached_property
    def offsets(self) -> torch.Tensor:
        """`(entities + 1,)` int64: entity k has the rows `offsets[k]` up to `offsets[k + 1]`."""
        return checked_offsets(self.segment, self.rows)

    @cached_property
    def time(self) -> torch.Tensor | None:
        """`(rows,)` int64 in units of `clock.unit` since 1970 UTC, or the source's integers; `None` without times."""
        return self.segment.tensor("__time") if self.time_name is not None else None

    @property
    def time_name(self) -> str | None:
        """The source column of the times."""
        return None if self.info.time is None else self.info.time.source

    @property
    def time_range(self) -> tuple[int | None, int | None]:
        """The first and the last time of all rows; `None` without times or rows."""
        time = self.info.time
        return (None, None) if time is None else (time.low, time.high)

    @cached_property
    def times_checksum(self) -> int | None:
        """A checksum of the times as they were loaded, for states; a file without one is read."""
        if self.info.time is None or self.time is None:
            return None
        known = self.info.time.checksum
        return times_checksum(self.time.numpy()) if known is None else known

    @property
    def clock(self) -> Clock:
        """How the times are read: `clock.unit` is "s", "ms", "us", "ns" or "d", and `clock.zone` the name of a zone.

        Either is `None` if there is none: integers that are no times have no unit.
        """
        time = self.info.time
        if time is None:
            return Clock(None, None)
        return Clock(time.unit, time.zone, "" if time.unit else epoch_hint(time.source, time.low, time.high))

    @cached_property
    def known(self) -> torch.Tensor | None:
        """`(rows,)` int64, when each row became known, in units of `known_clock.unit`; `None` without `known=`."""
        return None if self.info.known is None else self.segment.tensor("__known")

    @property
    def known_name(self) -> str | None:
        """The name of the known times: their source column, or of an expression its alias or "known"."""
        return None if self.info.known is None else self.info.known.source

    @property
    def known_range(self) -> tuple[int | None, int | None]:
        """The first and the last known time of all rows; `None` without known times or rows."""
        known = self.info.known
        return (None, None) if known is None else (known.low, known.high)

    @property
    def known_clock(self) -> Clock:
        """How the known times are read: their `unit` and `zone`, as those of `clock`."""
        known = self.info.known
        return Clock(None, None) if known is None else Clock(known.unit, known.zone)

    @property
    def is_by_known(self) -> bool:
        """Whether the rows of an entity are ordered by known time, then time; else by time, then known time."""
        return self.info.known is not None and self.info.known.is_first

    def about(self, name: str) -> Column:
        """How a column was loaded, and what was counted in it.

        Args:
            name: a column, or a static one.

        Returns:
            A record of its `name`; `members`, the source columns or expressions; `dtype`; `shape` of a row; `kind`:
            `"number"`, `"category"`, `"hashed"`, `"timestamp"`, `"date"`, `"time"` or `"duration"`; `unit` and `zone`
            of times; `fill` and `empty`; `is_scaled`; `nulls` of the source; `missing`, the NaN or codes -1; `unknown`,
            values that a given vocabulary lacks; `low` and `high`, the least and the greatest value or code.

        Raises:
            ColumnError: no such column.

        Example:
            >>> import tensorstash as ts
            >>> stash = ts.load({"t": [0, 1], "y": [None, 2.5]}, ["y"], time="t")
            >>> stash.about("y").kind, stash.about("y").missing, stash.about("y").high
            ('number', 1, 2.5)
        """
        try:
            return self._columns[name]
        except (KeyError, TypeError):
            raise unknown(name, self._columns, "the stash") from None

    def vocabulary(self, name: str) -> list[Any]:
        """The values that the codes of a column stand for: texts, or the integers of a given vocabulary.

        Another load gets the same codes with `ts.column(name, vocabulary=stash.vocabulary(name))`.

        Args:
            name: a column of codes, which may be static.

        Raises:
            ColumnError: no such column, or one without a vocabulary.

        Example:
            >>> import tensorstash as ts
            >>> stash = ts.load({"country": ["NO", "PE", "NO", None]})
            >>> stash["country"].tolist(), stash.vocabulary("country")
            ([0, 1, 0, -1], ['NO', 'PE'])
        """
        info = self.about(name)
        if info.kind != "category":
            raise ColumnError(
                f"Text columns have a vocabulary, and columns loaded with vocabulary=; {name!r} holds {info.dtype}."
            )
        vocabulary = [*self.names(name)]
        for fill in (info.fill, info.empty):
            if fill is not None and fill not in vocabulary:
                raise self.segment.damaged(f"column {name!r} is filled with {fill!r}, which is not in its vocabulary")
        return vocabulary

    def series(self, entity: Any) -> dict[str, torch.Tensor]:
        """One entity's rows of every column and its times, by name: views of the stash, each `(rows of it, ...)`.

        Args:
            entity: one of `entities`: a name, of several entity columns a tuple, or `None` if there are none.

        Raises:
            ColumnError: the stash does not have this entity.

        Example:
            >>> import tensorstash as ts
            >>> stash = ts.load({"e": ["a", "b", "a"], "t": [1, 1, 2], "y": [5, 6, 7]}, entity="e", time="t")
            >>> stash.series("a")
            {'t': tensor([1, 2]), 'y': tensor([5, 7])}
        """
        index = entity_number(self._entity_index, entity)
        rows = slice(int(self.offsets[index]), int(self.offsets[index + 1]))
        times = {} if self.known is None else {str(self.known_name): self.known[rows]}
        times = times if self.time is None else {str(self.time_name): self.time[rows]} | times
        return times | {name: tensor[rows] for name, tensor in self.items()}

    def to_polars(self) -> "pl.DataFrame":
        """A polars frame of entity, time, known time and every column; packs become arrays, codes become their values.

        Values that are not in a given vocabulary are null; hashed codes stay codes. Static columns come last.

        Example:
            >>> import tensorstash as ts
            >>> stash = ts.load({"shop": ["B", "A"], "day": [1, 1], "sky": ["sun", None]}, entity="shop", time="day")
            >>> stash.to_polars().rows()
            [('A', 1, None), ('B', 1, 'sun')]
        """
        from tensorstash.stash.interop import to_polars

        return to_polars(self)

    def to_arrow(self) -> "pa.Table":
        """A pyarrow Table of entity, times and every column over the memory of the stash, without a copy of it.

        Static columns come last, their values repeated in every row of their entity, which takes memory. Packs are
        fixed-size lists, codes are dictionary arrays, hashed codes int32, and bfloat16 is float32, whose field has the
        metadata that `ts.load` reads as bfloat16 again. Values that are not in a given vocabulary are null. Arrow needs
        memory of its own for booleans (bits), bfloat16, dates, times of day in s and ms, the nulls among codes and the
        entities.

        Example:
            >>> import tensorstash as ts
            >>> table = ts.load({"e": ["a", "b", "a"], "y": [5, 6, 7]}, ["y"], entity="e").to_arrow()
            >>> table["e"].to_pylist(), table["y"].to_pylist()
            (['a', 'a', 'b'], [5, 7, 6])
        """
        from tensorstash.stash.interop import to_arrow

        return to_arrow(self)

    def describe(
        self,
        columns: Sequence[str] | None = None,
        *,
        by: Literal["entity"] | None = None,
    ) -> "pl.DataFrame":
        """Statistics of columns: count, mean, standard deviation, quartiles and extremes; of codes the count.

        Booleans count as 0 and 1, times as the integers of the tensor; each component of a pack has its line. All rows
        count, in float64; only the quartiles come from a random sample of 100,000 rows of a column, or of each entity.
        Columns with infinite values have no mean.

        Args:
            columns: their names. `None` takes all columns, and without `by=` the static ones too, whose values count
                once per entity.
            by: `"entity"` for a line per entity and column; `None` for a line per column.

        Raises:
            ColumnError: no such column.

        Returns:
            A polars frame: with `by="entity"` the entity; `column`; `count` and `missing`; `mean`, `std`
            (divided by `count - 1`), `min`, `25%`, `50%`, `75%`, `max`, null for codes. The most common texts are those
            of `stash.to_polars()["sky"].value_counts()`.

        Example:
            >>> import tensorstash as ts
            >>> stash = ts.load({"y": [1.0, None, 3.0, 5.0], "sky": ["clear", "rain", "rain", None]})
            >>> stash.describe(["y", "sky"]).select("column", "count", "missing", "mean", "50%").rows()
            [('y', 3, 1, 3.0, 3.0), ('sky', 3, 1, None, None)]
        """
        from tensorstash.stash.describe import describe

        return describe(self, columns, by)

    def share(self, label: str) -> "Stash":
        """Copy the stash as it was loaded into memory that all processes of this user can attach; returns it attached.

        A stash with the same bytes and label is attached instead.

        Args:
            label: the name under which `ts.attach` finds the copy: up to 100 letters, digits or any of `_.+@=-`, with
                a letter or digit first.

        Raises:
            NoMemoryError: the copy does not fit. ValueError: `label` is not a label.

        Example:
            >>> import tensorstash as ts
            >>> shared = ts.load({"y": [1.0, 2.0]}).share("example-share")
            >>> ts.attach("example-share")["y"].tolist(), len(ts.shared.remove("example-share"))
            ([1.0, 2.0], 1)
        """
        return Stash(share_copy(self.segment, check_label(label)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the stash as it was loaded to one safetensors file, which `ts.open` maps.

        The file appears, or replaces the one at `path`, when it is whole and on disk. Processes that have the old file
        open keep it.

        Args:
            path: the file, such as "weather.safetensors".

        Raises:
            SegmentError: the file cannot be written. NoMemoryError: the disk is full.

        Example:
            >>> import os, tempfile, tensorstash as ts
            >>> path = os.path.join(tempfile.mkdtemp(), "small.safetensors")
            >>> ts.load({"y": [1.0, 2.0]}).save(path)
            >>> ts.open(path)["y"].tolist()
            [1.0, 2.0]
        """
        save(self.segment, path_of(path, "path"))

    def without_rows(self) -> "Stash":
        """A stash with the columns, entities, texts, clock and static columns of this one, and no row.

        Saved, it is the reference to ship with a model: `ts.load(rows, like=path)` takes over columns, expressions,
        entities and codes, and the step of time that windows of all rows find, which a few rows could not tell. It has
        some 60 bytes for each entity, whatever the number of rows.

        Example:
            >>> import tensorstash as ts
            >>> stash = ts.load({"e": ["a", "b"], "t": [1, 1], "y": [5.0, 6.0]}, ["y"], entity="e", time="t")
            >>> reference = stash.without_rows()
            >>> reference.rows, reference.entities
            (0, ['a', 'b'])
            >>> ts.load({"e": ["b"], "t": [2], "y": [7.0], "z": [0]}, like=reference).series("b")
            {'t': tensor([2]), 'y': tensor([7.], dtype=torch.float64)}
        """
        return Stash(without_rows(self))

    @cached_property
    def _entity_index(self) -> dict[Any, int]:
        return {name: index for index, name in enumerate(self.entities)}

    # columns are not meant to be changed, so a copy is not needed

    def __copy__(self) -> "Stash":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "Stash":
        return self

    def __repr__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return as_html(self)


def entity_number(numbers: Mapping[Any, int], name: Any) -> int:
    """The number of an entity by its name; of several columns a tuple or a list."""
    try:
        return numbers[tuple(name) if isinstance(name, list) else name]
    except (KeyError, TypeError):  # TypeError: not hashable
        raise unknown(name, numbers, "the stash", "entity") from None
