"""Where rows come from: files, object stores, tables and frames, all as one scan of units that yield Arrow batches.

It knows nothing of segments or of the order of rows. Start with `scan.py`, then `source.py`, `formats.py`,
`files.py` and `tables.py`.
"""
