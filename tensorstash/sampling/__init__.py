"""Which windows come when: orders as functions of (seed, epoch, position), the `Sampler`, and the position of a run.

The room knows nothing of values, files and tensors. Start with `order.py`, then `steps.py`, `passes.py` and
`sampler.py`. Each order has a file; `common/public.py` lists those that users write, and `bind.py` chooses one by the
arguments `shuffle=` and `order=`.
"""
