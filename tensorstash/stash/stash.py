"""The stash: a read-only dict of column tensors over one segment, grouped by entity and ordered by time."""

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from numpy.typing import NDArray

from tensorstash.columns.info import ColumnInfo
from tensorstash.common.clock import Clock
from tensorstash.errors import ColumnError, unknown
from tensorstash.segments.directory import check_label
from tensorstash.segments.publish import share_copy
from tensorstash.segments.save import save
from tensorstash.segments.segment import Segment
from tensorstash.stash.blocks import Block, blocks_of
from tensorstash.stash.display import as_html, as_text
from tensorstash.stash.header import checked_offsets, info_of
from tensorstash.stash.names import read_names

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa


class Stash(Mapping[str, torch.Tensor]):
    """The loaded columns: a `Mapping` from name to tensor, first dimension rows.

    Rows are grouped by entity, in the order in which the entities first appear in the source, and ordered by time
    within each. `ts.load`, `ts.open` and `ts.attach` return one. The tensors are mapped copy-on-write: only this
    process sees its in-place writes, and they never reach the file. Text columns hold int32 codes into
    `vocabulary(name)`, or -1 where there is no text. If a vocabulary was given to `load`, values that are not in it
    have its length as their code.
    """

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._tensors: dict[str, torch.Tensor] = {}  # made on first use: hundreds take longer than attaching
        self._info = info = info_of(segment)
        self._names = {column.name: segment.entries[column.name] for column in info.columns}
        self._about = {column.name: column for column in (*info.columns, *info.static)}
        self.rows: int = info.rows

    def __getitem__(self, name: str) -> torch.Tensor:
        tensor = self._tensors.get(name)
        if tensor is None:
            if name not in self._names:
                raise unknown(name, self, "the stash")
            tensor = self._tensors.setdefault(name, self._segment.tensor(name))
        return tensor

    # a stash equals only itself: a comparison of tensors would have no truth value
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    @property
    def nbytes(self) -> int:
        """Bytes of the columns, without time, static columns, names and padding."""
        return sum(tensor.nbytes for tensor in self.values())

    @property
    def path(self) -> str | None:
        """The file of a shared or opened stash, which `safetensors.safe_open` reads too; `None` for a private one."""
        return self._segment.path

    def private_bytes(self) -> int | None:
        """Bytes of the pages that only this process holds, because it wrote into the tensors; 0 without such writes.

        `None` on systems that do not report it (macOS).

        Example:
            >>> import tensorstash as ts
            >>> stash = ts.load({"y": [1.0, 2.0]})
            >>> stash["y"][0] = 5.0
            >>> stash.private_bytes() in (4096, None)
            True
        """
        return self._segment.private_bytes()

    @cached_property
    def entities(self) -> list[Any]:
        """The names of the entities, in the order of their rows; `[None]` where the source has no entity column.

        They are tuples if `load` was given a list of entity columns.
        """
        if not self.entity_names:
            return [None]
        values = map(self._entity_values, self.entity_names)
        parts = [names if isinstance(names, list) else names.tolist() for names in values]
        return parts[0] if isinstance(self._entity_name, str) else [*zip(*parts)]

    def _entity_values(self, name: str) -> "NDArray[Any] | list[str]":
        """The value that each entity has in one of the columns in `entity_names`: an array of integers, or texts."""
        return read_names(
            self._segment,
            "__entities" if isinstance(self._entity_name, str) else f"__entities.{self.entity_names.index(name)}",
        )

    @property
    def entity_names(self) -> tuple[str, ...]:
        """The source columns of the entities: none, one or several."""
        name = self._entity_name
        return () if name is None else (name,) if isinstance(name, str) else name

    @cached_property
    def static(self) -> dict[str, torch.Tensor]:
        """The columns that were loaded as static: tensors `(entities, ...)` whose row k belongs to `entities[k]`."""
        return {column.name: self._segment.blob(column.name) for column in self._info.static}

    @cached_property
    def offsets(self) -> torch.Tensor:
        """`(entities + 1,)` int64: entity k has the rows `offsets[k]` up to `offsets[k + 1]`."""
        return checked_offsets(self._segment, self.rows)

    @cached_property
    def time(self) -> torch.Tensor | None:
        """`(rows,)` int64 in units of `clock.unit` since 1970 UTC, or the source's integers; `None` without times."""
        return self._segment.tensor("__time") if self.time_name is not None else None

    @property
    def time_name(self) -> str | None:
        """The source column of the times."""
        return None if self._info.time is None else self._info.time.source

    @property
    def time_range(self) -> tuple[int | None, int | None]:
        """The first and the last time of all rows; `None` without times or rows."""
        time = self._info.time
        return (None, None) if time is None else (time.low, time.high)

    @property
    def clock(self) -> Clock:
        """The unit and zone in which the times are read."""
        time = self._info.time
        return Clock(None, None) if time is None else Clock(time.unit, time.zone)

    @property
    def _entity_name(self) -> str | tuple[str, ...] | None:
        """The source column of the entities; a tuple of them where `load` was given a list."""
        return self._info.entity

    def about(self, name: str) -> ColumnInfo:
        """How a column was loaded (kind, unit, zone, fill, members), and its nulls, missing values, minimum, maximum.

        Example:
            >>> import tensorstash as ts
            >>> stash = ts.load({"t": [0, 1], "y": [None, 2.5]}, ["y"], time="t")
            >>> stash.about("y").kind, stash.about("y").missing, stash.about("y").high
            ('number', 1, 2.5)
        """
        try:
            return self._about[name]
        except KeyError:
            raise unknown(name, self._about, "the stash") from None

    def vocabulary(self, name: str) -> list[Any]:
        """The values that the codes of a column stand for: texts, or the integers of a given vocabulary.

        Another load gets the same codes with `ts.column(name, vocabulary=stash.vocabulary(name))`.

        Example:
            >>> import tensorstash as ts
            >>> stash = ts.load({"country": ["NO", "PE", "NO", None]})
            >>> stash["country"].tolist(), stash.vocabulary("country")
            ([0, 1, 0, -1], ['NO', 'PE'])
        """
        if self.about(name).kind != "category":
            tensor = self.static[name] if name in self.static else self[name]
            raise ColumnError(
                f"Text columns have a vocabulary, and those that were given one; {name!r} holds {tensor.dtype}."
            )
        values = read_names(self._segment, f"{name}.__vocabulary")
        return values if isinstance(values, list) else values.tolist()

    def series(self, entity: Any) -> dict[str, torch.Tensor]:
        """One entity's rows of every column, as views, and its times under the name of the time column.

        If there are several entity columns, `entity` is a tuple of their values.

        Example:
            >>> import tensorstash as ts
            >>> stash = ts.load({"e": ["a", "b", "a"], "t": [1, 1, 2], "y": [5, 6, 7]}, entity="e", time="t")
            >>> stash.series("a")
            {'t': tensor([1, 2]), 'y': tensor([5, 7])}
        """
        try:
            index = self._entity_index[tuple(entity) if isinstance(entity, list) else entity]
        except KeyError:
            raise unknown(entity, self.entities, "the stash", "entity") from None
        rows = slice(int(self.offsets[index]), int(self.offsets[index + 1]))
        times = {} if self.time is None else {str(self.time_name): self.time[rows]}
        return times | {name: tensor[rows] for name, tensor in self.items()}

    def to_polars(self) -> "pl.DataFrame":
        """A polars frame of entity, time and every column; packs become arrays, codes become their values.

        Values that are not in a given vocabulary are null; hashed codes stay codes. Static columns come last, with
        their values repeated in every row of their entity.
        """
        from tensorstash.stash.interop import to_polars

        return to_polars(self)

    def to_arrow(self) -> "pa.Table":
        """A pyarrow Table of entity, time and every column over the memory of the stash, without a copy of it.

        Static columns come last, their values repeated in every row of their entity, which takes memory.

        Packs are fixed-size lists, codes are dictionary arrays, hashed codes int32, and bfloat16 is uint16 with its
        bits, which `ts.load` reads as bfloat16 again. Values that are not in a given vocabulary are null. Arrow needs
        memory of its own for booleans (bits), dates, times of day in s and ms, the nulls among codes (a bit per row)
        and the entities (a code per row).

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
        by: str | None = None,
        sample: int | None = 100_000,
        seed: int = 0,
    ) -> "pl.DataFrame":
        """Statistics of columns: count, mean, standard deviation, quartiles and extremes, or the most common value.

        Booleans count as 0 and 1, times as the integers that the tensor holds, and each component of a pack has a line
        of its own. Everything is computed in float64 from all rows, except the quartiles, which come from a random
        sample. NaN counts as missing. Columns with infinite values have no mean.

        Args:
            columns: their names. `None` takes all columns, and without `by=` the static ones too, whose values count
                once per entity.
            by: `"entity"` for a line per entity and column.
            sample: how many rows of each column, or of each entity, the quartiles are computed from. `None` takes all,
                and needs 8 bytes for each.
            seed: the seed of the sample.

        Returns:
            A polars frame: with `by="entity"` the entity; `column`; `count` and `missing`; `mean`, `std`
            (divided by `count - 1`), `min`, `25%`, `50%`, `75%`, `max`, null for codes; `distinct` and `top` for codes:
            the number of different values, and the most common one as text, or the bucket of a hash. Values that are
            not in a given vocabulary are in `count`, but in neither of these.

        Example:
            >>> import tensorstash as ts
            >>> stash = ts.load({"y": [1.0, None, 3.0, 5.0], "sky": ["clear", "rain", "rain", None]})
            >>> stash.describe(["y", "sky"]).select("column", "count", "missing", "mean", "50%", "top").rows()
            [('y', 3, 1, 3.0, 3.0, None), ('sky', 3, 1, None, None, 'rain')]
        """
        from tensorstash.stash.describe import describe

        return describe(self, columns, by, sample, seed)

    def share(self, label: str) -> "Stash":
        """Copy the stash into memory that all processes of this user can attach, and return it attached.

        The values are copied as they were loaded, without in-place changes. If a stash with the same bytes exists under
        that label, it is attached instead. Raises `NoMemoryError` if there is no room for the copy.

        Example:
            >>> import tensorstash as ts
            >>> shared = ts.load({"y": [1.0, 2.0]}).share("example-share")
            >>> ts.attach("example-share")["y"].tolist(), len(ts.shared.remove("example-share"))
            ([1.0, 2.0], 1)
        """
        return Stash(share_copy(self._segment, check_label(label)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the stash as it was loaded to one safetensors file, which `ts.open` maps.

        The file appears, or replaces the one at `path`, when it is whole and on disk. In-place changes of the tensors
        are not saved. Processes that have the old file open keep it; never truncate or rewrite a file in place that is
        open somewhere, because reading bytes that are gone ends the process (SIGBUS).

        Raises:
            SegmentError: the file cannot be written.
        """
        save(self._segment, os.fsdecode(path))

    @cached_property
    def _blocks(self) -> list[Block]:
        """The columns side by side, as gather needs them."""
        return blocks_of(self, self._segment)

    @cached_property
    def _entity_index(self) -> dict[Any, int]:
        return {name: index for index, name in enumerate(self.entities)}

    # the columns are not meant to be changed, so one copy serves everybody

    def __copy__(self) -> "Stash":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "Stash":
        return self

    def __repr__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return as_html(self)
