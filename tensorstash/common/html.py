"""HTML and SVG for notebooks and reports: text is escaped, and pictures stay small whatever the data."""

import html
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from tensorstash.common.ranges import true_ranges

_LONGEST = 80  # the most characters of a text
_WIDTH = 600  # pixels of a picture
_LABEL = 110  # pixels for the label of a lane
_LANE = 14  # the height of a lane
# from few to many; the shades also differ in lightness, and are visible on white and on black
_SHADES = ("#9cb8cf", "#4f87b3", "#1d5c8f")
_INK = "#808080"  # readable on white and on black


def escaped(text: str) -> str:
    """Text for HTML, cut if it is long."""
    return html.escape(cut(text, _LONGEST))


def cut(text: str, most: int) -> str:
    """The text if it has at most `most` characters, else its beginning and an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def table(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """A table with a head."""

    def row(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escaped(cell)}</{tag}>" for cell in cells) + "</tr>"

    return f"<table>{row(head, 'th')}{''.join(row(cells, 'td') for cells in body)}</table>"


def lanes(labels: Sequence[str], shares: NDArray[np.float64], foot: tuple[str, str] = ("", "")) -> str:
    """A picture with a lane per label: bins from left to right, the darker the larger the share, 0 left out.

    Args:
        labels: the text before each lane.
        shares: `(lanes, bins)` from 0 to 1.
        foot: the labels below the left and the right end.
    """
    levels = np.ceil(shares * len(_SHADES)).astype(np.int64).clip(0, len(_SHADES))
    step = (_WIDTH - _LABEL) / max(levels.shape[1], 1)
    drawn = []
    for level, colour in enumerate(_SHADES, start=1):
        strokes = "".join(
            f"M{_LABEL + low * step:.4g} {lane * _LANE + _LANE // 2}h{(high - low) * step:.4g}"
            for lane, row in enumerate(levels)
            for low, high in zip(*true_ranges(row == level))
        )
        drawn.append(f'<path d="{strokes}" stroke="{colour}" stroke-width="{_LANE - 4}"/>' if strokes else "")
    texts = [_text(cut(label, 16), 0, lane * _LANE + 11) for lane, label in enumerate(labels)]
    height = _LANE * len(labels)
    texts += [_text(foot[0], _LABEL, height + 12), _text(foot[1], _WIDTH, height + 12, "end")]
    return _svg(height + 16, "".join(drawn) + "".join(texts))


def lines(labels: Sequence[str], values: Sequence[NDArray[np.float64]], height: int = 40) -> str:
    """Small pictures of numbers side by side, each with a label below it; NaN breaks a line."""
    width = _WIDTH / max(len(values), 1)
    drawn = []
    for k, (label, numbers) in enumerate(zip(labels, values)):
        drawn.append(_line(numbers, k * width, width * 0.9, height))
        drawn.append(_text(cut(label, int(width / 7)), int(k * width), height + 14))
    return _svg(height + 18, "".join(drawn))


def _line(numbers: NDArray[np.float64], left: float, width: float, height: int) -> str:
    finite = np.isfinite(numbers)
    if not finite.any():
        return ""
    low, high = float(numbers[finite].min()), float(numbers[finite].max())
    across = width / max(len(numbers) - 1, 1)
    # divided before it is subtracted: the difference of two numbers may overflow
    scale = max(abs(low), abs(high), 1e-300)
    rise = (high / scale - low / scale) or 1.0
    strokes = ""
    for start, stop in zip(*true_ranges(finite)):
        points = (
            f"{left + k * across:.4g} {height - 2 - (numbers[k] / scale - low / scale) / rise * (height - 4):.4g}"
            for k in range(start, stop)
        )
        strokes += "M" + "L".join(points) + ("" if stop - start > 1 else "h1")
    return f'<path d="{strokes}" fill="none" stroke="{_SHADES[1]}" stroke-width="1.2"/>'


def _text(text: str, x: int, y: int, anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{_INK}">{escaped(text)}</text>' if text else ""


def _svg(height: int, inside: str) -> str:
    box = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" style="max-width:100%"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box} font-size="11" font-family="sans-serif">{inside}</svg>'
