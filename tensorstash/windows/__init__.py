"""Which rows are samples: `Windows`, spans, runs, slots, intervals, points, cuts, splits, folds.

This room computes with integers only, and knows nothing of order, ranks or devices. Start with `windows.py`, then
`making.py`, `placement.py`, `slots.py` and `intervals.py`; for events `points.py` and `during.py`.
"""
