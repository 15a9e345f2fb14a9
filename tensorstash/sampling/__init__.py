"""Which windows when: orders as functions of (n, seed, epoch), the `Sampler`, and where an epoch stands.

It knows nothing of values, files and tensors. Start with `order.py`, then `sampler.py`.
"""
