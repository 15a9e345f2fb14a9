"""The loaded columns: the `Stash`, a read-only dict of tensors, its descriptions, and its export to other libraries.

It knows nothing of sampling. Start with `stash.py`.
"""
