"""What a forked child must not use or keep. Only this file holds the fork state of the process."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

# whether this process is a forked child, and whether polars had threads before the fork, which the child lacks
_state = {"forked": False, "polars_started": False, "polars_lost": False}


def _look_for_polars() -> None:
    with suppress(OSError):  # only Linux lists threads
        for thread in Path("/proc/self/task").iterdir():
            _state["polars_started"] |= (thread / "comm").read_text() == "polars-0\n"


os.register_at_fork(
    before=_look_for_polars, after_in_child=lambda: _state.update(forked=True, polars_lost=_state["polars_started"])
)


def has_pool() -> bool:
    """Whether this process can compute with polars: not a forked child that inherits its pool without its threads."""
    return not _state["polars_lost"]


def check_pool() -> None:
    """Refuse to compute in a forked child that inherits the pool of polars without its threads: it would hang."""
    if not has_pool():
        raise RuntimeError(
            "A forked process cannot compute with polars that its parent has used, because its threads do not survive "
            "a fork. Start processes with 'spawn' or 'forkserver', or load before the fork."
        )


def check_threads() -> None:
    """Refuse several threads in a forked child: it inherits torch's pool without its threads, and would hang."""
    if not _state["forked"]:
        return
    import torch  # imported here, because the command line does not need it

    if torch.get_num_threads() > 1:
        raise RuntimeError(
            "A forked process can gather on one thread only, because torch's thread pool does not survive a fork. Call "
            "torch.set_num_threads(1) in it first; DataLoader workers do so themselves."
        )


# Descriptors that a forked child must not keep: they would hold locks, and memory, after this process has been killed
_kept: set[int] = set()


def keep_from_children(fd: int) -> None:
    """Register a descriptor that becomes /dev/null in a forked child."""
    _kept.add(fd)


def close_kept(fd: int) -> None:
    """Unlock and close a registered descriptor."""
    _kept.discard(fd)
    with suppress(OSError):  # some network file systems have no locks
        fcntl.flock(fd, fcntl.LOCK_UN)  # for children that were forked outside Python, whose handlers did not run
    os.close(fd)


def _replace_kept() -> None:
    # the descriptor numbers stay in use, because their owners may also close them in the child
    if _kept:
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        for fd in _kept:
            os.dup2(null, fd, inheritable=False)
        os.close(null)
        _kept.clear()


os.register_at_fork(after_in_child=_replace_kept)
