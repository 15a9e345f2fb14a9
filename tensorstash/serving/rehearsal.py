"""A small load and a batch of it: the imports and first calls that the first request of a service would wait for."""

from contextlib import suppress
from functools import cache

import numpy as np

from tensorstash.batches.loader import Loader
from tensorstash.ingest.load import load
from tensorstash.transforms.scaler import Scaler
from tensorstash.windows.windows import Windows


@cache
def rehearse() -> None:
    """Do, once in a process, what a request does, with two rows of numpy: no thread of polars starts before a fork."""
    rows = {"entity": np.zeros(2, np.int64), "time": np.arange(2), "value": np.arange(2.0)}
    stash = load(rows, ["value"], entity="entity", time="time", progress=False)
    newest = Windows(load(rows, like=stash.without_rows(), progress=False), 1, 1).latest()
    scaler = Scaler.fit(stash, ["value"], by="entity")
    with suppress(RuntimeError):  # a forked process with several threads cannot gather, but may use the stash
        next(iter(Loader(newest, 1, transform=[scaler], with_ids=True, prefetch=0)))
