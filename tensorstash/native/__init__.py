"""The optional kernel in plain C, and the equivalent numpy code for permutations and look-ups.

This room computes with integers, addresses and bytes, and knows nothing of columns, windows, loaders or files. Without
the kernel, numpy and torch give the same results, bit by bit. Start with `library.py`, which finds and loads the
compiled kernel, then `kernel.py`, which calls it.
"""
