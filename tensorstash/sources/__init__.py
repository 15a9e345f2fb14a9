"""Where rows come from: files, object stores, tables and frames, each opened as units that yield Arrow batches.

It knows nothing of segments or of the order of rows. Start with `read.py`, then `source.py`, `formats.py`,
`files.py` and `tables.py`.
"""
