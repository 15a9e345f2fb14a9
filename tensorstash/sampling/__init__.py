"""Which windows come when: orders as functions of (seed, epoch, position), the `Sampler`, and the position of a run.

The room knows nothing of values, files and tensors. Start with `order.py`, then `steps.py`, `passes.py` and
`sampler.py`. Each order has a file: `ordinary.py`, `blocks.py`, `lanes.py`, `own_ids.py`, `weighted.py`,
`per_entity.py`, `by_time.py` and `mixed.py`; `bind.py` chooses one by the arguments `shuffle=` and `order=`.
"""
