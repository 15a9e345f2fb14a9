"""Prefetch: items that a thread makes before the loop asks for them."""

import os
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from threading import current_thread
from typing import TypeVar

Item = TypeVar("Item")

_NAME = "tensorstash-prefetch"

# what a forked child must never free: that takes locks which the thread may have held when the process was forked
_inherited: list[object] = []


def ahead(items: Iterator[Item], count: int) -> Generator[Item, None, None]:
    """The same items, made in a thread up to `count` ahead.

    Closing it cancels items that have not begun and waits for the item under way. A forked child inherits no threads
    and so cannot continue the iteration: a `RuntimeError`.
    """
    own_process, own_thread, name = os.getpid, current_thread, _NAME  # at exit the globals of modules may be gone
    process = own_process()
    thread = ThreadPoolExecutor(1, name)
    waiting: deque[Future[Item | None]] = deque()
    try:
        waiting.extend(thread.submit(next, items, None) for _ in range(count))
        while (item := _next(waiting, process)) is not None:
            waiting.append(thread.submit(next, items, None))
            yield item
            del item
    finally:
        if own_process() == process:
            # not shutdown(cancel_futures=True): at interpreter exit, modules that it needs may be gone
            for future in waiting:
                future.cancel()
            thread.shutdown(wait=not own_thread().name.startswith(name))  # collected there, it cannot wait for itself
        else:
            _inherited.append((thread, waiting, items))


def _next(waiting: deque[Future[Item | None]], process: int) -> Item | None:
    if os.getpid() != process:
        raise RuntimeError(
            "A forked process cannot continue an iterator that was begun before the fork with prefetch, because the "
            "thread that prefetches does not survive a fork. Begin a new iterator in the child, or use prefetch=0."
        )
    return waiting.popleft().result()
