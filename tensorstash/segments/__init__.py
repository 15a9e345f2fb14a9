"""The memory of a stash: the file format, its mapping, limits, and the directory of shared segments.

It knows nothing of Arrow or time series. Start with `format.py`, then `publish.py`.
"""
