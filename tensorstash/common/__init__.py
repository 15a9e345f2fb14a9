"""What every room needs: checks of arguments, dtypes, clock and frequency, threads, progress, and state after a fork.

`keywords.py` is the table of words that other libraries use for the arguments here.

It knows nothing of windows, files or the values of tensors. Start with `dtypes.py`, then `clock.py` and `frequency.py`.
"""
