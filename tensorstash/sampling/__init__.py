"""Which windows come when: orders as functions of (n, seed, epoch), the `Sampler`, and the position of a run.

It knows nothing of values, files and tensors. Start with `order.py`, then `steps.py`, `passes.py` and `sampler.py`.
"""
