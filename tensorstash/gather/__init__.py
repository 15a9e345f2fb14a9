"""Rows to tensors: the spans of many windows are copied out of columns in a few vectorized operations.

This room receives the positions of windows as integers, and knows nothing of entities, time, order or how anything gets
to a device. Start with `rows.py`, what a batch asks for, then `gather.py`; `by_kernel.py` and `by_torch.py` fill
batches.
"""
