"""The loaded columns: the `Stash`, a read-only dict of tensors, what it says of itself, its way to other libraries.

It knows nothing of sampling. Start with `stash.py`.
"""
