"""Shards made by a Ray cluster: Ray Data reads the source, groups its rows by shard, and writes a shard per group.

Ray runs a task again whose worker or node has died, and the tasks whose results were lost with it.
"""

import pickle
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from tensorstash.cluster.rows_by_shard import ROW, SHARD, SourceRows
from tensorstash.cluster.shard_file import ShardReport, ShardWriter
from tensorstash.errors import SegmentError


def ray_data() -> Any:
    """The package Ray, with Ray Data."""
    try:
        import ray.data
    except ImportError as error:
        raise ImportError('engine="ray" needs Ray. Install it: pip install "tensorstash[ray]".') from error
    return ray


def write_with_ray(
    ray: Any, rows: SourceRows, numbers: Sequence[int], writer: ShardWriter, in_files: bool
) -> Generator[tuple[int, ShardReport]]:
    """Write the shards of these numbers. If the source is not files, this process reads it for all nodes."""

    def write(group: pa.Table) -> pa.Table:
        number = group[SHARD][0].as_py()
        report = writer.write(number, group.sort_by(ROW))
        return pa.table({"number": [number], "report": [pickle.dumps(report)]})

    rest = {*numbers}
    with _session(ray):
        if in_files:
            shared = ray.put((rows, [*numbers]))

            def tables(batch: Any) -> Iterator[pa.Table]:
                rows, numbers = ray.get(shared)
                for place in batch["id"].tolist():
                    yield from rows.read(rows.choice.source.units[place], numbers)

            data = ray.data.range(len(rows.choice.source.units)).map_batches(tables, batch_format="numpy")
        else:
            parts = (part for unit in rows.choice.source.units for part in rows.read(unit, numbers))
            data = ray.data.from_arrow_refs([ray.put(part) for part in parts])
        for row in data.groupby(SHARD).map_groups(write, batch_format="pyarrow").iter_rows():
            rest.discard(row["number"])
            yield row["number"], pickle.loads(row["report"])
    for number in sorted(rest):  # these shards have no rows
        yield number, writer.write(number, rows.schema.empty_table())


@contextmanager
def _session(ray: Any) -> Iterator[None]:
    """Shuffle by tasks, and raise errors as they were raised in a task."""
    context = ray.data.DataContext.get_current()
    before = context.shuffle_strategy
    # it keeps the rows in Ray's object store; a run during which a node was killed made the same files
    context.shuffle_strategy = ray.data.context.ShuffleStrategy.SORT_SHUFFLE_PULL_BASED
    try:
        yield
    except ray.exceptions.RayTaskError as error:
        cause: BaseException = error
        while (inner := getattr(cause, "cause", None) or cause.__cause__) is not None:
            cause = inner
        raise cause from None  # raises the error of the task, without those that Ray wraps around it
    except ray.exceptions.RayError as error:
        why = " ".join(str(error).split())
        raise SegmentError(
            f"Ray could not make the shards: {type(error).__name__}: {why} Run it again: shards that are finished are "
            "kept."
        ) from error
    finally:
        context.shuffle_strategy = before
