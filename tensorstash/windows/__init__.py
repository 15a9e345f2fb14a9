"""Which rows are samples: `Windows`, spans, runs, slots, intervals, splits.

It computes with integers only, and knows nothing of order, ranks or devices. Start with `windows.py`, then `slots.py`
and `intervals.py`.
"""
