"""Which rows are samples: `Windows`, spans, runs, slots, intervals, splits, folds.

This room computes with integers only, and knows nothing of order, ranks or devices. Start with `windows.py`, then
`layout.py`, `slots.py` and `intervals.py`.
"""
