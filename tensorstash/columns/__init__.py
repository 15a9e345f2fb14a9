"""What a column is: what callers say about it, its type in Arrow and torch, and how it is computed.

It knows nothing of files and processes. Start with `spec.py` (`ts.column`) and `types.py` (the table Arrow <-> torch).
"""
