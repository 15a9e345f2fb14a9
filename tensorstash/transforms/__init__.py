"""Batch to batch: `Scaler`, `InstanceNorm`, `Cast`, crosses of columns, and packing.

It knows nothing of files and ranks. Start with `cast.py`, the shortest one. A `Scaler` (`scaler.py`) takes its
constants from `statistics.py`, applies them to batches with `scaling.py` and to a stash with `scaled_stash.py`, and looks up
spans and entities of windows in `bound.py`. A `PackSequences` (`pack.py`) places windows with `packing.py`.
"""
