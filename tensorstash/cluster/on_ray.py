"""Shards made by a Ray cluster: a task for each block of the source, whose pieces lie in Ray's object store, and one
for each shard. Ray runs a task again whose worker or node has died, and the tasks whose results were lost with it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tensorstash.cluster.cut import Cut, Piece, Recipe, cut, write_stream
from tensorstash.cluster.write import Done, Job, write_shard
from tensorstash.errors import SegmentError
from tensorstash.sources.scan import Scan


class OnRay:
    """The engine of a Ray cluster."""

    def __init__(self, in_files: bool, workers: int | None) -> None:
        """`in_files`: every node can read the source. `workers` limits the shards that are written at a time."""
        self._ray = _ray()
        self._in_files = in_files
        self._workers = workers

    def cuts(self, recipe: Recipe, blocks: Sequence[Scan]) -> Iterator[Cut]:
        """The blocks, cut, in their order; their pieces are references to Ray's objects."""
        wanted = sorted(recipe.wanted)
        with _errors_of_tasks(self._ray):
            if not self._in_files:
                for block in blocks:
                    yield cut(recipe, block, lambda rows: self._ray.put(_streamed(rows)))
                return
            task = self._ray.remote(num_returns=1 + len(wanted), max_retries=-1)(_cut)
            shared = self._ray.put(recipe)
            results = [task.remote(shared, block) for block in blocks]
            for result in results:
                first, *streams = result if wanted else [result]
                found = self._ray.get(first)
                there = {shard: (rows, streams[wanted.index(shard)]) for shard, (rows, _) in found.pieces.items()}
                yield replace(found, pieces=there)

    def write(self, jobs: Sequence[tuple[Job, Sequence[Piece]]]) -> Iterator[tuple[int, Done]]:
        """Write the shards of the jobs, in whatever order they are done."""
        task = self._ray.remote(max_retries=-1)(_write)
        waiting: dict[Any, int] = {}
        rest = iter(jobs)
        with _errors_of_tasks(self._ray):
            while True:
                for job, pieces in rest:
                    plain = [replace(piece, stream=None) for piece in pieces]
                    waiting[task.remote(job, plain, *(piece.stream for piece in pieces))] = job.number
                    if self._workers is not None and len(waiting) >= self._workers:
                        break
                if not waiting:
                    return
                (done, *_), _ = self._ray.wait([*waiting])
                yield waiting.pop(done), self._ray.get(done)


def _cut(recipe: Recipe, block: Scan) -> Any:
    found = cut(recipe, block, _streamed)
    streams = [found.pieces[shard][1] if shard in found.pieces else None for shard in sorted(recipe.wanted)]
    plain = replace(found, pieces={shard: (rows, None) for shard, (rows, _) in found.pieces.items()})
    return [plain, *streams] if streams else plain


def _streamed(rows: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    write_stream(rows, sink)
    return sink.getvalue()


def _write(job: Job, pieces: Sequence[Piece], *streams: Any) -> Done:
    return write_shard(job, [replace(piece, stream=stream) for piece, stream in zip(pieces, streams)])


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise ImportError('engine="ray" needs Ray. Install it: pip install "tensorstash[ray]".') from error
    return ray


@contextmanager
def _errors_of_tasks(ray: Any) -> Iterator[None]:
    """Errors of a task as they were raised in it; those of Ray itself as a `SegmentError`."""
    try:
        yield
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except ray.exceptions.RayError as error:
        why = " ".join(str(error).split())
        raise SegmentError(
            f"Ray could not make the shards: {type(error).__name__}: {why} Run it again: it goes on with the shards "
            "that are there."
        ) from error
