"""Any source as a scan: its type says whether it is paths, a table, a frame or a mapping of arrays."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tensorstash.sources.arrays import scan_arrays
from tensorstash.sources.file import File
from tensorstash.sources.files import scan_files
from tensorstash.sources.filter import Filter
from tensorstash.sources.locate import label_of_paths
from tensorstash.sources.scan import Scan, Wanted
from tensorstash.sources.tables import scan_arrow, scan_dataset, scan_pandas, scan_polars

# by the names of the types, so that no library is imported to compare with them
_SCANS: dict[str, Callable[[Any, Wanted], Scan]] = {
    "pyarrow.Table": scan_arrow,
    "pyarrow.RecordBatch": scan_arrow,
    "polars.DataFrame": scan_polars,
    "pandas.DataFrame": scan_pandas,
    "datasets.Dataset": scan_dataset,
}
_REMEDIES = {
    "polars.LazyFrame": " Call .collect() first.",
    "pyarrow.RecordBatchReader": " It can be read only once: call .read_all() first.",
    "datasets.DatasetDict": " Choose one of its splits.",
    "datasets.IterableDataset": " Load it without streaming=True.",
}


def scan(
    source: Any, files: Sequence[File] | None, wanted: Wanted, condition: Filter | None, progress: bool | None
) -> Scan:
    """Scan a source: its `files`, or what it holds in memory, which is a frame, a table or a mapping of arrays.

    Only the `wanted` columns of a frame or mapping are converted to Arrow. Row groups of files that the statistics
    exclude under the condition are left out; other rows are not filtered here.
    """
    if files is not None:
        return scan_files(files, label_of_paths(source), wanted, condition, progress)
    kind = f"{type(source).__module__.split('.')[0]}.{type(source).__name__}"
    look = _SCANS.get(kind, scan_arrays if isinstance(source, Mapping) and kind not in _REMEDIES else None)
    if look is not None:
        return look(source, wanted)
    raise TypeError(
        "A source is a path, a glob, a directory, a URL, a list of them, a polars or pandas DataFrame, a pyarrow Table "
        "or RecordBatch, a Hugging Face Dataset, or a mapping of arrays; got "
        f"{type(source).__module__}.{type(source).__name__}.{_REMEDIES.get(kind, '')}"
    )
