"""What every room needs: checks of arguments, dtypes, clock and frequency, threads, progress, fork state.

It knows nothing of time series, files or tensors' values. Start with `dtypes.py`, then `clock.py` and `frequency.py`.
"""
