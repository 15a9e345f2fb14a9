"""Which rank this process is, and of how many."""

import os

import torch.distributed


def ranks_here() -> tuple[int, int, str]:
    """`(num_replicas, rank, origin)` of the process group, else of the environment, as they are now."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_world_size(), torch.distributed.get_rank(), "process group"
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        return (*_of_environment(os.environ["WORLD_SIZE"], os.environ["RANK"]), "environment")
    return 1, 0, "default"


def _of_environment(world_size: str, rank: str) -> tuple[int, int]:
    if not (world_size.isdecimal() and rank.isdecimal() and int(rank) < int(world_size)):
        raise ValueError(
            f"The variables WORLD_SIZE and RANK must be integers with 0 <= RANK < WORLD_SIZE, got {world_size!r} and "
            f"{rank!r}. Set both, or neither, or give num_replicas= and rank=."
        )
    return int(world_size), int(rank)
