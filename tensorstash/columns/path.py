"""`ts.path`: columns that hold a part of the path of each row's file."""

from typing import Literal, get_args

from tensorstash.common.checks import one_of

Part = Literal["stem", "name", "parent"]

# the names of the columns, which are fields of no source
PARTS: dict[str, Part] = {f"ts.path.{part}": part for part in get_args(Part)}


def path(part: Part) -> str:
    """The name of a text column that every source of files has: a part of the path of each row's file.

    It stands wherever the name of a source column may stand: in `columns=`, `static=`, `entity=`, `filter=`,
    `ts.column` and the like, and in expressions. A filter of tuples that excludes a file leaves it unopened.

    Args:
        part: `"stem"` is the name of the file without the ending of its format, "ABC" of "prices/ABC.csv.gz"; `"name"`
            the name with it; `"parent"` the name of the directory, "prices".

    Raises:
        ValueError: another part. SourceError, from `ts.load`: the source is not files.

    Example:
        >>> import os, tempfile, pyarrow as pa, pyarrow.parquet as pq, tensorstash as ts
        >>> folder = tempfile.mkdtemp()
        >>> for name in ("ABC", "XYZ"):
        ...     rows = pa.table({"day": [1, 2], "price": [0.5, 0.25]})
        ...     pq.write_table(rows, os.path.join(folder, f"{name}.parquet"))
        >>> stash = ts.load(folder, ["price"], entity=ts.path("stem"), time="day")
        >>> stash.entities, stash.entity_names
        (['ABC', 'XYZ'], ('ts.path.stem',))
    """
    return f"ts.path.{one_of(part, get_args(Part), 'part')}"
