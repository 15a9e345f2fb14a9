"""`ts.plot`: plots of a stash, of windows and of forecasts, with matplotlib (the extra `plot`).

The room owns what is drawn and how. No other room imports it.
"""

from tensorstash.plot.coverage import coverage
from tensorstash.plot.forecast import forecast
from tensorstash.plot.series import series
from tensorstash.plot.windows import windows

__all__ = ["coverage", "forecast", "series", "windows"]


def __dir__() -> list[str]:
    return __all__
