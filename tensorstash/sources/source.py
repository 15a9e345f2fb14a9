"""Opens any source, by its type: paths, a table, a frame, a stream or a mapping of arrays."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tensorstash.errors import SourceError
from tensorstash.sources.file import File
from tensorstash.sources.formats import format_of
from tensorstash.sources.locate import kind_of, label_of_paths
from tensorstash.sources.read import Source, Wanted
from tensorstash.sources.tables import open_arrays, open_arrow, open_dataset, open_pandas, open_polars

if TYPE_CHECKING:
    from tensorstash.sources.filter import Filter

# `open_source` imports what reads files and streams: with pyarrow.dataset it takes as long as many loads of a frame.

# tables, by the name of the type, so that no library has to be imported
_TABLES: dict[str, Callable[[Any, Wanted], Source]] = {
    "pyarrow.Table": open_arrow,
    "pyarrow.RecordBatch": open_arrow,
    "polars.DataFrame": open_polars,
    "pandas.DataFrame": open_pandas,
    "datasets.Dataset": open_dataset,
}
_DATASETS_OF_FILES = ("pyarrow.FileSystemDataset", "pyarrow.UnionDataset")
_REMEDIES = {
    "datasets.DatasetDict": " Choose one of its splits.",
    "datasets.IterableDataset": " Load it without streaming=True.",
    "xarray.Dataset": " Load dataset.to_dataframe().",
    "io.BufferedReader": " Load its path, or pl.read_parquet(file).",
    "io.BytesIO": " Load pl.read_parquet(file).",
    "io.TextIOWrapper": " Load its path.",
    "builtins.bytes": " Load pl.read_parquet(data), or pl.read_csv(data).",
    "numpy.ndarray": " Give it a name: {'x': array}.",
    "torch.Tensor": " Give it a name: {'x': tensor}.",
    "polars.Series": " Load series.to_frame('y').",
    "pandas.Series": " Load series.to_frame('y').",
    "tensorstash.Stash": " Use the stash itself: stash.share(label) shares it, stash.save(path) writes it.",
    "deltalake.DeltaTable": " Load pl.scan_delta(table).",
    "pyiceberg.Table": " Load pl.scan_iceberg(table).",
    "builtins.HudiTable": " Load pa.Table.from_batches(table.read()).",
    "duckdb.DuckDBPyConnection": " Load a relation: connection.sql('from ...').",
}
# the same for lists, by the type of the first item
_REMEDIES_OF_LISTS = {
    "builtins.dict": " Load pl.DataFrame(rows).",
    "pyarrow.RecordBatch": " Load pa.Table.from_batches(batches).",
    "pyarrow.Table": " Load pa.concat_tables(tables).",
    "pandas.DataFrame": " Load pd.concat(frames).",
    "polars.DataFrame": " Load pl.concat(frames).",
    "polars.LazyFrame": " Load pl.concat(frames).",
}
_CONCATENATE = " Concatenate frames first; files are a list of paths; give arrays names: {'x': array}."


def is_table(source: object) -> bool:
    """Whether a source is a frame or table that can be read more than once; a mapping is neither."""
    return kind_of(source) in (*_TABLES, "polars.LazyFrame")


def open_source(
    source: Any,
    files: Sequence[File] | None,
    wanted: Wanted,
    condition: "Filter | None",
    progress: bool | None,
) -> Source:
    """Open the `files` of a source, or the source itself if it is not files.

    Streams and CSV files are read to their ends, into a file on disk. Only the `wanted` columns of a frame or mapping
    are converted to Arrow. Row groups of files are left out if their statistics contradict the condition; all other
    rows are kept.
    """
    if files is not None:
        first = {format_of(file.name).footer is None: file for file in reversed(files)}
        if len(first) > 1:
            raise SourceError(
                f"The files of a source must all be CSV, or none; {first[True]} is CSV, and {first[False]} is not. "
                "Name files of one kind."
            )
        if True in first:
            from tensorstash.sources.csv import open_csv_files

            return open_csv_files(files, label_of_paths(source), wanted, condition, progress)
        from tensorstash.sources.files import open_files

        return open_files(files, label_of_paths(source), wanted, condition, progress)
    kind = kind_of(source)
    if (open_table := _TABLES.get(kind)) is not None:
        return open_table(source, wanted)
    if kind in _DATASETS_OF_FILES:
        from tensorstash.sources.files import open_pyarrow_dataset

        return open_pyarrow_dataset(source, wanted, condition, progress)
    if isinstance(source, Mapping) and kind not in _REMEDIES:
        return open_arrays(source, wanted)
    from tensorstash.sources.streams import is_stream, open_stream

    if is_stream(source) and kind not in _REMEDIES:
        return open_stream(source, wanted, condition, progress)
    remedy = _REMEDIES.get(kind, "")
    if kind in ("builtins.list", "builtins.tuple"):
        remedy = _REMEDIES_OF_LISTS.get(kind_of(source[0]), _CONCATENATE)
    raise TypeError(
        "A source is a path, a glob, a directory, a URL, a list of them, a polars or pandas DataFrame, a pyarrow Table "
        "or RecordBatch, a Hugging Face Dataset, an object with __arrow_c_stream__, or a mapping of arrays; got "
        f"{type(source).__module__}.{type(source).__name__}.{remedy}"
    )
