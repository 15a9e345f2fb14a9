"""A pyarrow Dataset of Parquet files as a scan: it can be read again, and its footers have the rows."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads

from tensorstash.columns.names import field_of
from tensorstash.errors import SourceError
from tensorstash.sources.filter import Filter
from tensorstash.sources.scan import BATCH_ROWS, Scan, Unit, Wanted
from tensorstash.sources.statistics import kept_groups, range_of
from tensorstash.sources.streams import scan_stream


def scan_pyarrow_dataset(source: Any, wanted: Wanted, condition: Filter | None) -> Scan:
    """The row groups of a dataset of Parquet files; any other is read as a stream."""
    try:
        fragments = _fragments(source, condition)
    except ValueError:  # it has a filter or a projection of its own
        return scan_stream(source, wanted, condition)
    if not all(isinstance(fragment, pads.ParquetFileFragment) for fragment in fragments):
        return scan_stream(source, wanted, condition)
    label, schema = f"the pyarrow {type(source).__name__}", source.schema
    for name in wanted.among(dict.fromkeys(schema.names)):
        field_of(schema, name, label)
    footers = [_footer(fragment) for fragment in fragments]
    units, start, first = [], 0, 0
    for fragment in fragments:
        kept = _kept(fragment, schema, condition)
        for group in fragment.row_groups:
            if group.id in kept:
                read = partial(_read, fragment, group.id, schema)
                units.append(Unit(f"{fragment.path}, row group {group.id}", start, group.num_rows, read, first))
                start += group.num_rows
            first += group.num_rows
    pieces = sum(len(fragment.row_groups) for fragment in fragments)
    return Scan(label, schema, tuple(units), pieces, (), partial(range_of, footers))


def _fragments(source: Any, condition: Filter | None) -> list[pads.Fragment]:
    """The files of a dataset whose partition keys do not contradict the filter."""
    if condition is not None:
        with suppress(pa.ArrowException):  # a filter that does not fit the columns is refused later, with its names
            return [*source.get_fragments(condition.expression)]
    return [*source.get_fragments()]


def _footer(fragment: pads.ParquetFileFragment) -> tuple[Any, pa.Schema]:
    try:
        return fragment.metadata, fragment.physical_schema
    except (pa.ArrowException, OSError) as error:
        raise SourceError(f"{fragment.path} is not a readable Parquet file: {error}") from error


def _kept(fragment: pads.ParquetFileFragment, schema: pa.Schema, condition: Filter | None) -> Collection[int]:
    """The row groups of a fragment that statistics do not exclude."""
    if condition is None:
        return range(fragment.metadata.num_row_groups)
    own = fragment.physical_schema
    found = pa.schema([own.field(field.name) if field.name in own.names else field for field in schema])
    return kept_groups(fragment, found, condition, schema)


def _read(fragment: pads.ParquetFileFragment, group: int, schema: pa.Schema, names: Sequence[str]) -> Iterator[Any]:
    one = fragment.subset(row_group_ids=[group])
    options = {"schema": schema, "columns": list(names), "batch_size": BATCH_ROWS}
    yield from one.scanner(**options, use_threads=False, batch_readahead=1, fragment_readahead=0).to_batches()
