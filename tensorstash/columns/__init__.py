"""Columns: what callers ask for, their types in Arrow and torch, and how computed columns are computed.

It knows nothing of files and processes. Start with `spec.py` (`ts.column`) and `types.py` (the table Arrow <-> torch).
"""
