"""The values behind codes and entities: texts or integers, kept as small tensors of the segment."""

from itertools import pairwise
from typing import Any

from numpy.typing import NDArray

from tensorstash.segments.segment import Segment


def read_names(segment: Segment, name: str) -> "NDArray[Any] | list[str]":
    """An array of integers, or a list of texts."""
    if f"{name}.integers" in segment.entries:
        return segment.blob(f"{name}.integers").numpy()
    return _texts(segment, name)


def _texts(segment: Segment, name: str) -> list[str]:
    text = segment.blob(f"{name}.text").numpy().tobytes()
    bounds = [0, *segment.blob(f"{name}.ends").tolist()]
    try:
        texts = [text[begin:end].decode() for begin, end in pairwise(bounds)]
    except (UnicodeDecodeError, TypeError) as error:
        raise segment.damaged(f"the texts of {name!r} cannot be decoded: {error}") from error
    if bounds != sorted(bounds) or bounds[-1] != len(text):
        raise segment.damaged(f"the texts of {name!r} do not fill their bytes")
    return texts
