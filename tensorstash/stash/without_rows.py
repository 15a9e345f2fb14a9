"""A stash without its rows: the columns, entities and texts that other loads take over with `like=`."""

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from tensorstash.columns.column import with_counts
from tensorstash.columns.info import StashInfo, to_header
from tensorstash.common.dtypes import as_integers
from tensorstash.segments.draft import Draft
from tensorstash.segments.segment import Segment
from tensorstash.stash.header import MONTH_DAYS, times_checksum
from tensorstash.stash.month_days import kept_days
from tensorstash.stash.steps import frequency_of

if TYPE_CHECKING:
    from tensorstash.stash.stash import Stash

_BLOB_PAGE = 64  # most texts are few, and a page for each would outweigh them


def without_rows(stash: "Stash") -> Segment:
    """What `Stash.without_rows` returns."""
    segment, metadata = stash.segment, to_header(_info(stash.info, frequency_of(stash)))
    blobs = {name: segment.blob(name) for name in segment.checksums}
    if (days := kept_days(stash)) is not None:
        blobs[MONTH_DAYS] = torch.from_numpy(days)
    rows = sorted((entry for entry in segment.tensors.values() if entry.name not in blobs), key=lambda each: each.start)
    # an entry of the header has the name, 100 characters, and as many for the padding that follows
    entries = sum(200 + len(json.dumps(name)) for name in {*segment.tensors, *blobs})
    draft = Draft(
        [(entry.name, entry.dtype, (0, *entry.shape[1:])) for entry in rows],
        1024 + entries + len(json.dumps(json.dumps(metadata))) + 40 * len(blobs),
        blob_page=_BLOB_PAGE,
    )
    blobs["__offsets"] = torch.zeros_like(blobs["__offsets"])
    for name, values in blobs.items():
        draft.blob(name, as_integers(values.contiguous()).numpy(), values.dtype)
    draft.seal(metadata)
    return Segment(os.dup(draft.fd))


def _info(info: StashInfo, frequency: int | str | None) -> StashInfo:
    none = times_checksum(np.zeros(0, np.int64))
    time = info.time and replace(info.time, low=None, high=None, duplicates=False, checksum=none)
    known = info.known and replace(info.known, low=None, high=None, is_first=False, checksum=none)
    # of values that are not in a vocabulary only is kept whether the vocabulary was given
    empty = np.zeros(0)
    columns = tuple(replace(with_counts(column, empty), unknown=column.unknown and 0) for column in info.columns)
    return replace(info, rows=0, columns=columns, time=time, known=known, frequency=frequency)
