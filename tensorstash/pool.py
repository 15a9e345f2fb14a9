"""Work on many things in a few threads, with a bar where it takes long."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tensorstash.progress import Bar

_SILENCE = 1.0  # seconds before a bar appears

T = TypeVar("T")
R = TypeVar("R")


def each(work: Callable[[T], R], items: Sequence[T], threads: int, what: str, progress: bool | None) -> list[R]:
    """The results for all items in their order; the first that fails, or Ctrl-C, ends the rest.

    A bar counts them from the second second on; `progress` is that of `ts.load`.
    """
    pool = ThreadPoolExecutor(max(1, min(threads, len(items))), "tensorstash-look")
    hidden = None if progress is None else not progress
    try:
        with Bar(total=len(items), desc=what, delay=_SILENCE, disable=hidden) as bar:
            found = []
            for result in pool.map(work, items):
                found.append(result)
                bar.update()
            return found
    finally:
        pool.shutdown(cancel_futures=True)
