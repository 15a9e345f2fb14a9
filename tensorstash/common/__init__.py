"""What every room needs: checks of arguments, dtypes, clock and frequency, threads, progress, and state after a fork.

It knows nothing of windows, files or the values of tensors. Start with `dtypes.py`, then `clock.py` and `frequency.py`.
"""
