"""Batch to batch: `Scaler`, `InstanceNorm`, `Cast`, crosses of columns, and packing.

It knows nothing of files and ranks. Start with `cast.py`, the shortest one. A `Scaler` (`scaler.py`) takes its
constants from `fitting.py`, over the rows of `rows_seen.py`. It scales batches with `scaling.py` and a stash with
`scaled_stash.py`, and looks up spans of windows in `bound.py`, its entities or codes in `groups.py`. A
`PackSequences` (`pack.py`) places windows with `packing.py`. For all of them `observed.py` says which slots hold
values.
"""
