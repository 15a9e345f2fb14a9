"""The rank of this process: as it was given, in the default process group, or in the environment."""

import os

import torch.distributed

from tensorstash.common.checks import at_least
from tensorstash.common.warn import warn

_MOST_RANKS = 1 << 31


def checked_ranks(num_replicas: int | None, rank: int | None) -> tuple[int, int] | None:
    """The arguments of a sampler; `None` if they are to be looked up when a pass begins."""
    if num_replicas is None and rank is None:
        return None
    if num_replicas is None or rank is None:
        raise ValueError(f"num_replicas and rank must be given together, got {num_replicas} and {rank}.")
    size, number = at_least(1, num_replicas, "num_replicas", below=_MOST_RANKS), at_least(0, rank, "rank")
    if number >= size:
        raise ValueError(f"rank must lie in [0, num_replicas), got rank={rank}, num_replicas={num_replicas}.")
    return size, number


def present_ranks() -> tuple[int, int, str]:
    """`(num_replicas, rank, origin)` of this process."""
    if _has_group():
        return torch.distributed.get_world_size(), torch.distributed.get_rank(), "process group"
    size, rank = (os.environ.get(name) for name in ("WORLD_SIZE", "RANK"))
    if size is None or rank is None:
        return 1, 0, "default"
    if not (size.isdecimal() and rank.isdecimal() and int(rank) < int(size)):
        raise ValueError(
            f"The variables WORLD_SIZE and RANK must be integers with 0 <= RANK < WORLD_SIZE, got {size!r} and "
            f"{rank!r}. Set both, or neither, or give num_replicas= and rank=."
        )
    return int(size), int(rank), "environment"


def _has_group() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def warn_of_shared_parts(num_replicas: int) -> None:
    """Warn if several ranks of the process group get the same windows."""
    if _has_group() and (size := torch.distributed.get_world_size()) > num_replicas:
        warn(
            f"The process group has {size} ranks and num_replicas= is {num_replicas}, so several ranks get the same "
            "windows. That is meant for ranks that share a part of the model (tensor, pipeline or context "
            "parallelism), with rank= their data rank, and for accelerator.prepare, which divides the batches itself; "
            "else leave both arguments out."
        )
