"""Drawings of spans, draws, packing, mixes and versions: `python docs/drawings.py` writes them anew."""

from collections.abc import Callable, Iterable
from pathlib import Path

PICTURES = Path(__file__).parent / "pictures"

STYLE = """<style>
  text { font: 14px system-ui, sans-serif; fill: #24292f }
  .code { font: 13px ui-monospace, monospace }
  .small { font-size: 12px; fill: #57606a }
  .row { fill: #afb8c1 } .empty { fill: none; stroke: #8c959f; stroke-dasharray: 3 2 }
  .past { fill: #2f81c4 } .target { fill: #e08a2c } .third { fill: #3c9a5f }
  .line { stroke: #6e7781; fill: none; stroke-width: 1.3 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .small { fill: #9198a1 } .line { stroke: #9198a1 } .row { fill: #57606a }
  }
</style>"""


def rect(x: float, y: float, kind: str, width: float = 20) -> str:
    """One slot."""
    return f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="20" rx="3"/>'


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """Words whose start, middle or end is at x."""
    return f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{words}</text>'


def line(x1: float, y1: float, x2: float, y2: float) -> str:
    """A thin line."""
    return f'<path class="line" d="M{x1:g} {y1:g} L{x2:g} {y2:g}"/>'


def slots(x: float, y: float, kinds: Iterable[str]) -> list[str]:
    """Slots side by side."""
    return [rect(x + 26 * k, y, kind) for k, kind in enumerate(kinds)]


def svg(height: int, title: str, parts: Iterable[str]) -> str:
    """A drawing that follows the colours of the page."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {height}" role="img" aria-label="{title}">'
    return "\n".join([head, STYLE, *parts, "</svg>"]) + "\n"


def spans() -> str:
    """Two spans and one with a step around an anchor."""
    left, anchor = 230, 230 + 26 * 8
    rows = [
        ("series", ["row"] * 12),
        ('("x", -6, 0)', ["none"] * 2 + ["past"] * 6),
        ('("y", 0, 3)', ["none"] * 8 + ["target"] * 3),
        ('("y", -6, 3, 3)', ["third" if k in (2, 5, 8) else "none" for k in range(11)]),
    ]
    parts = [text(left + 26 * k + 10, 22, str(k - 8), "small", "middle") for k in range(12)]
    for k, (name, kinds) in enumerate(rows):
        parts.append(text(left - 16, 49 + 34 * k, name, "code" if k else "", "end"))
        parts += [part for part in slots(left, 34 + 34 * k, kinds) if '"none"' not in part]
    parts += [line(anchor - 3, 30, anchor - 3, 168), text(anchor - 3, 186, "anchor: slot 0", "small", "middle")]
    return svg(196, "Slots numbered around the anchor, and the slots that three spans take", parts)


def during() -> str:
    """Events in time, the stretch before t, its newest rows, and its buckets."""
    at = [96, 150, 255, 272, 288, 388, 430]
    start, end, scale = 240, 470, 24
    inside = [x for x in at if start <= x < end]
    parts = [text(16, 51, "rows of an entity"), line(150, 46, 560, 46)]
    parts += [rect(150 + (x - 90) * 0.95 - 5, 36, "past" if x in inside[-3:] else "row", 10) for x in at]
    begin, stop = 150 + (start - 90) * 0.95, 150 + (end - 90) * 0.95
    parts += [line(begin, 26, begin, 68), line(stop, 26, stop, 68), text(stop, 20, "t", "code", "middle")]
    parts += [text((begin + stop) / 2, 82, "the stretch: start to stop", "small", "middle")]
    parts += [text(16, 123, "max_rows=3", "code"), *slots(150, 108, ["past"] * 3)]
    parts += [text(150 + scale * 5, 123, "the newest rows of the stretch; empty slots stand in front", "small")]
    width = (stop - begin) / 4
    buckets = [[x for x in inside if start + k * 57.5 <= x < start + (k + 1) * 57.5] for k in range(4)]
    parts += [line(begin + k * width, 58, begin + k * width, 68) for k in range(1, 4)]
    parts += [text(16, 165, "every=", "code"), *slots(150, 150, ["past" if bucket else "empty" for bucket in buckets])]
    parts += [text(150 + scale * 5, 165, "the newest row of each bucket", "small")]
    return svg(184, "Rows in time; a stretch before t; its newest rows; its buckets", parts)


def draw() -> str:
    """Three windows of one span whose starts differ."""
    parts = [text(16, 24, "ts.Draw(-8, -2, step=2): each start equally often, drawn anew in each epoch")]
    for k, length in enumerate((4, 8, 2)):
        kinds = ["empty"] * (8 - length) + ["past"] * length + ["target"] * 2
        parts += [text(16, 63 + 30 * k, f"window {k}", "code"), *slots(110, 48 + 30 * k, kinds)]
        parts.append(text(390, 63 + 30 * k, f"starts at {-length}", "small"))
    return svg(142, "Three windows with 4, 8 and 2 slots of history", parts)


def packing() -> str:
    """Windows of several lengths, and the two rows that they are packed into."""
    lengths = {"past": 5, "target": 3, "third": 2}
    parts = [text(16, 24, "windows"), text(380, 24, "rows of length=6, without padding between")]
    for k, (kind, length) in enumerate(lengths.items()):
        parts += slots(16, 40 + 30 * k, ["empty"] * (6 - length) + [kind] * length)
    packed = [["past"] * 5 + ["empty"], ["target"] * 3 + ["third"] * 2 + ["empty"]]
    numbers = [[1] * 5 + [0], [1] * 3 + [2] * 2 + [0]]
    for k, (kinds, segments) in enumerate(zip(packed, numbers)):
        parts += slots(380, 40 + 44 * k, kinds)
        parts += [text(390 + 26 * j, 76 + 44 * k, str(number), "small", "middle") for j, number in enumerate(segments)]
    parts += [line(210, 80, 340, 80), text(275, 72, "PackSequences", "small", "middle")]
    parts += [text(550, 76, ".segment", "code"), text(550, 120, ".segment", "code")]
    return svg(136, "Three windows of 5, 3 and 2 slots in two rows of six", parts)


def mix() -> str:
    """A run of draws in which the shares hold at any point."""
    order = ["past", "target", "past", "past", "past", "past", "target", "past"] * 2
    parts = [text(16, 24, 'weights={"old": 3, "new": 1}: at any point within two windows of the shares')]
    parts += [text(16, 63, "run", "code"), *slots(110, 48, order)]
    parts += [text(16, 93, "of new", "code")]
    shown = 0
    for k, kind in enumerate(order):
        shown += kind == "target"
        parts.append(text(120 + 26 * k, 90, f"{shown}", "small", "middle"))
    parts.append(text(126 + 26 * 16, 90, "a quarter of the windows so far", "small"))
    return svg(108, "Windows of two components in shares of three to one", parts)


def versions() -> str:
    """Runs of a forecast over the hours of a day, and those that a window sees."""
    left, pitch, first, last, t = 214, 22, 12, 36, 28  # hours from the midnight before the last one on
    parts = [text(left + pitch * (h - first), 18, f"{h % 24}:00", "small", "middle") for h in range(first, last + 1, 4)]
    for k, (issued, arrival) in enumerate(((12, "arrived 17:00"), (18, "arrived 23:00"), (24, "arrives 5:00"))):
        parts.append(text(16, 45 + 30 * k, f"{issued % 24}:00, {arrival}"))
        for hour in range(issued, min(issued + 16, last)):
            kind = "empty" if issued == 24 else "past" if issued == 18 and hour >= t else "row"
            parts.append(rect(left + pitch * (hour - first), 30 + 30 * k, kind))
    parts.append(text(16, 145, "seen at t = 4:00"))
    kinds = ["past"] * 6 + ["empty"] * 2
    parts += [rect(left + pitch * (t + k - first), 130, kind) for k, kind in enumerate(kinds)]
    at = left + pitch * (t - first) - 1
    parts += [line(at, 24, at, 156), text(at, 172, "t", "code", "middle")]
    return svg(180, "Three runs of a forecast, and the hours that a window sees of those that had arrived", parts)


def whole() -> str:
    """Two series of different lengths, and the rows of a batch that hold them."""
    parts = [text(100, 22, "rows of the file"), text(470, 22, "the batch, max_slots=8")]
    for k, length in enumerate((8, 5)):
        parts += [text(16, 55 + 30 * k, f"series {k}"), *slots(100, 40 + 30 * k, ["row"] * length)]
        parts += [line(340, 50 + 30 * k, 440, 50 + 30 * k), *slots(470, 40 + 30 * k, ["past"] * length)]
        parts += slots(470 + 26 * length, 40 + 30 * k, ["empty"] * (8 - length))
    return svg(106, "Two series of 8 and 5 rows, each a row of 8 slots in the batch", parts)


def each() -> str:
    """Two windows over a pack of two columns, and the four rows of the batch that they become."""
    parts = [text(100, 22, "a pack of two columns"), text(400, 22, "the batch"), text(550, 22, ".window", "code")]
    parts.append(text(650, 22, ".variate", "code"))
    for k, kind in enumerate(("past", "past", "target", "target")):
        y = 40 + 26 * k + 10 * (k // 2)
        parts += [*slots(100, y, [kind] * 4), line(230, y + 10, 370, y + 10), *slots(400, y, [kind] * 4)]
        parts += [text(570, y + 15, str(k // 2), "small", "middle"), text(680, y + 15, str(k % 2), "small", "middle")]
    parts += [text(16, 68, "window 0", "code"), text(16, 130, "window 1", "code")]
    return svg(160, "Two windows of two columns, which are four rows of the batch", parts)


DRAWINGS: dict[str, Callable[[], str]] = {
    "spans": spans,
    "during": during,
    "draw": draw,
    "packing": packing,
    "mix": mix,
    "versions": versions,
    "whole": whole,
    "each": each,
}


if __name__ == "__main__":
    for name, drawing in DRAWINGS.items():
        (PICTURES / f"{name}.svg").write_text(drawing(), "utf-8")
