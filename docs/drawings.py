"""The drawings of the pages: `python docs/drawings.py` writes them anew.

They are so narrow that their text can be read where a phone shrinks them to its width.
"""

import math
from collections.abc import Callable, Iterable
from pathlib import Path

PICTURES = Path(__file__).parent / "pictures"
WIDTH = 440
PITCH = 24  # from a slot to the next one

STYLE = """<style>
  text { font: 14px system-ui, sans-serif; fill: #24292f }
  .code { font: 13px ui-monospace, monospace }
  .small { font-size: 12px; fill: #57606a }
  .row { fill: #afb8c1 } .empty { fill: none; stroke: #8c959f; stroke-dasharray: 3 2 }
  .past { fill: #2f81c4 } .target { fill: #e08a2c } .third { fill: #3c9a5f }
  .pale { opacity: 0.35 }
  .line { stroke: #6e7781; fill: none; stroke-width: 1.3 } .head { fill: #6e7781 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .small { fill: #9198a1 } .line { stroke: #9198a1 } .head { fill: #9198a1 }
    .row { fill: #57606a }
  }
</style>"""


def rect(x: float, y: float, kind: str, width: float = PITCH - 6, height: float = 20) -> str:
    """One slot."""
    return f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="3"/>'


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """Words whose start, middle or end is at x."""
    return f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{words}</text>'


def line(*points: tuple[float, float]) -> str:
    """A thin line through points."""
    return f'<path class="line" d="M{" L".join(f"{x:g} {y:g}" for x, y in points)}"/>'


def arrow(x1: float, x2: float, y: float) -> list[str]:
    """An arrow to the right."""
    head = f'<path class="head" d="M{x2 - 9:g} {y - 5:g} L{x2:g} {y:g} L{x2 - 9:g} {y + 5:g} Z"/>'
    return [line((x1, y), (x2 - 8, y)), head]


def slots(x: float, y: float, kinds: Iterable[str], pitch: float = PITCH, height: float = 20) -> list[str]:
    """Slots side by side; the kind `none` leaves one out."""
    return [rect(x + pitch * k, y, kind, pitch - pitch // 4, height) for k, kind in enumerate(kinds) if kind != "none"]


def svg(height: int, title: str, parts: Iterable[str], shown: int = WIDTH) -> str:
    """A drawing that follows the colours of the page, and is `shown` pixels wide where there is room."""
    size = f'viewBox="0 0 {WIDTH} {height}" width="{shown}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{title}">'
    return "\n".join([head, STYLE, *parts, "</svg>"]) + "\n"


def batch() -> str:
    """Series with windows in them, and the batch that one gather makes of these."""
    left, lane = 40, 48
    windows = {"EWR": [60], "JFK": [10, 140], "LGA": [95]}
    parts = [text(left, 18, "series, once in memory"), text(300, 18, "batch of tensors")]
    for k, (name, starts) in enumerate(windows.items()):
        top = 30 + (lane + 8) * k
        parts.append(text(6, top + 28, name, "code"))
        for x in starts:
            parts += [rect(left + x, top, "past pale", 50, lane), rect(left + x + 50, top, "target pale", 17, lane)]
        ys = [top + 24 + 9 * math.sin(x / 11 + 2 * k) + 5 * math.sin(x / 3.7 + k) for x in range(0, 211, 3)]
        points = [(left + 3 * j, round(y, 1)) for j, y in enumerate(ys)]
        parts += [line(*points[:29]), line(*points[42:])] if name == "JFK" else [line(*points)]
    parts.append(text(left + 105, 115, "gap", "small", "middle"))
    parts += [*arrow(256, 292, 110), text(274, 98, "gather", "small", "middle")]
    for k in reversed(range(4)):
        kind = "" if k == 0 else " pale"
        parts.append(rect(300 + 6 * k, 66 - 6 * k, f"past{kind}", 58, 84))
        parts.append(rect(386 + 6 * k, 66 - 6 * k, f"target{kind}", 20, 84))
    parts += [text(300, 170, "past", "code"), text(300, 186, "(256, 96, 3)", "small")]
    parts += [text(380, 170, "target", "code"), text(380, 186, "(256, 24)", "small")]
    parts.append(text(left, 214, "Windows cross no series, and no gap unless it is masked.", "small"))
    return svg(224, "Three series, one with a gap; the windows in them; and a batch as two tensors", parts, 520)


def window() -> str:
    """A series with a gap, a window around its anchor, and the batch that it is a row of."""
    left, pitch, anchor = 40, 13, 20
    kinds = ["row"] * 9 + ["empty"] * 2 + ["row"] * 3 + ["past"] * 6 + ["target"] * 3 + ["row"] * 7
    x = left + pitch * anchor
    parts = [text(6, 18, "one series (entity): a row for each step of time")]
    parts += [text(6, 84, "JFK", "code"), *slots(left, 70, kinds, pitch)]
    for first, stop in ((0, 9), (11, 30)):
        a, b = left + pitch * first, left + pitch * stop - 4
        parts += [line((a, 62), (a, 56), (b, 56), (b, 62)), text((a + b) / 2, 50, "run", "small", "middle")]
    parts.append(text(left + pitch * 10 - 2, 50, "gap", "small", "middle"))
    parts += [line((x - 2, 64), (x - 2, 132)), text(x - 2, 146, "anchor: slot 0", "small", "middle")]
    for first, stop in ((-6, 0), (0, 3)):
        a, b = x + pitch * first, x + pitch * stop - 4
        parts.append(line((a, 94), (a, 100), (b, 100), (b, 94)))
    parts.append(text(x - 8, 117, "past: slots [-6, 0)", "small", "end"))
    parts.append(text(x + 6, 117, "target: slots [0, 3)", "small"))
    parts.append(text(6, 178, "A batch holds many windows, in any order:"))
    for k in range(3):
        parts += [*slots(left, 192 + 17 * k, ["past" if k == 0 else "past pale"] * 6, pitch, 13)]
        parts += [*slots(left + 96, 192 + 17 * k, ["target" if k == 0 else "target pale"] * 3, pitch, 13)]
    for y, name, length in ((210, "past", 6), (232, "target", 3)):
        parts += [text(190, y, f'batch["{name}"]', "code"), text(320, y, f"(batch, {length})", "code")]
    title = "A series of slots with a gap; a window with past and target spans around its anchor; a batch of windows"
    return svg(250, title, parts, 560)


def spans() -> str:
    """Two spans and one with a step around an anchor."""
    left, anchor = 146, 146 + PITCH * 8
    rows = [
        ("series", ["row"] * 12),
        ('("x", -6, 0)', ["none"] * 2 + ["past"] * 6),
        ('("y", 0, 3)', ["none"] * 8 + ["target"] * 3),
        ('("y", -6, 3, 3)', ["third" if k in (2, 5, 8) else "none" for k in range(11)]),
    ]
    parts = [text(left + PITCH * k + 9, 18, str(k - 8), "small", "middle") for k in range(12)]
    for k, (name, kinds) in enumerate(rows):
        parts.append(text(left - 14, 43 + 34 * k, name, "code" if k else "", "end"))
        parts += slots(left, 28 + 34 * k, kinds)
    parts += [line((anchor - 3, 24), (anchor - 3, 162)), text(anchor - 3, 178, "anchor: slot 0", "small", "middle")]
    return svg(188, "Slots numbered around the anchor, and the slots that three spans take", parts)


def during() -> str:
    """Events in time, the stretch before t, its newest rows, and its buckets."""
    at = [96, 150, 255, 272, 288, 388, 430]
    start, end, left, scale = 240, 470, 100, 0.82
    inside = [x for x in at if start <= x < end]
    begin, stop = left + (start - 90) * scale, left + (end - 90) * scale
    parts = [text(6, 51, "rows"), line((left, 46), (434, 46))]
    parts += [rect(left + (x - 90) * scale - 5, 36, "past" if x in inside[-3:] else "row", 10) for x in at]
    parts += [line((begin, 26), (begin, 68)), line((stop, 26), (stop, 68)), text(stop, 20, "t", "code", "middle")]
    parts += [text((begin + stop) / 2, 84, "the stretch: start to stop", "small", "middle")]
    parts += [text(6, 123, "max_rows=3", "code"), *slots(left, 108, ["past"] * 3)]
    parts += [text(left + 108, 115, "the newest rows of the stretch;", "small")]
    parts += [text(left + 108, 130, "empty slots stand in front", "small")]
    width = (stop - begin) / 4
    buckets = [[x for x in inside if start + k * 57.5 <= x < start + (k + 1) * 57.5] for k in range(4)]
    parts += [line((begin + k * width, 58), (begin + k * width, 68)) for k in range(1, 4)]
    parts += [text(6, 165, "every=", "code"), *slots(left, 150, ["past" if bucket else "empty" for bucket in buckets])]
    parts += [text(left + 108, 165, "the newest row of each bucket", "small")]
    return svg(182, "Rows in time; a stretch before t; its newest rows; its buckets", parts)


def draw() -> str:
    """Three windows of one span whose starts differ."""
    parts = [text(6, 18, "ts.Draw(-8, -2, step=2)", "code")]
    parts.append(text(6, 40, "Each start equally often, drawn anew in each epoch:"))
    for k, length in enumerate((4, 8, 2)):
        kinds = ["empty"] * (8 - length) + ["past"] * length + ["target"] * 2
        parts += [text(6, 69 + 30 * k, f"window {k}", "code"), *slots(86, 54 + 30 * k, kinds)]
        parts.append(text(340, 69 + 30 * k, f"starts at {-length}", "small"))
    return svg(142, "Three windows with 4, 8 and 2 slots of history", parts)


def packing() -> str:
    """Windows of several lengths, and the two rows that they are packed into."""
    lengths = {"past": 5, "target": 3, "third": 2}
    left = 286
    parts = [text(6, 18, "windows"), text(left, 18, "rows of length=6")]
    for k, (kind, length) in enumerate(lengths.items()):
        parts += slots(6, 32 + 30 * k, ["empty"] * (6 - length) + [kind] * length)
    packed = [["past"] * 5 + ["empty"], ["target"] * 3 + ["third"] * 2 + ["empty"]]
    numbers = [[1] * 5 + [0], [1] * 3 + [2] * 2 + [0]]
    for k, (kinds, segments) in enumerate(zip(packed, numbers)):
        parts += [*slots(left, 32 + 46 * k, kinds), text(left - 10, 68 + 46 * k, ".segment", "code", "end")]
        for j, number in enumerate(segments):
            parts.append(text(left + 9 + PITCH * j, 68 + 46 * k, str(number), "small", "middle"))
    parts += [*arrow(162, 276, 42), text(216, 33, "PackSequences", "small", "middle")]
    return svg(126, "Three windows of 5, 3 and 2 slots in two rows of six", parts)


def mix() -> str:
    """A run of draws in which the shares hold at any point."""
    order = (["past", "target", "past", "past", "past", "past", "target", "past"] * 2)[:14]
    parts = [text(6, 18, 'weights={"old": 3, "new": 1}', "code")]
    parts.append(text(6, 40, "At any point within two windows of the shares:"))
    parts += [text(6, 69, "run", "code"), *slots(84, 54, order), text(6, 95, "of new", "code")]
    shown = 0
    for k, kind in enumerate(order):
        shown += kind == "target"
        parts.append(text(93 + PITCH * k, 95, f"{shown}", "small", "middle"))
    parts.append(text(84, 115, "a quarter of the windows so far", "small"))
    return svg(126, "Windows of two components in shares of three to one", parts)


def versions() -> str:
    """Runs of a forecast over the hours of a day, and those that a window sees."""
    left, pitch, first, last, t = 160, 11.5, 12, 36, 28  # hours from the midnight before the last one on
    parts = [text(left + pitch * (h - first), 18, f"{h % 24}:00", "small", "middle") for h in range(first, last, 4)]
    for k, (issued, arrival) in enumerate(((12, "arrived 17:00"), (18, "arrived 23:00"), (24, "arrives 5:00"))):
        parts.append(text(6, 45 + 30 * k, f"{issued % 24}:00, {arrival}"))
        for hour in range(issued, min(issued + 16, last)):
            kind = "empty" if issued == 24 else "past" if issued == 18 and hour >= t else "row"
            parts.append(rect(left + pitch * (hour - first), 30 + 30 * k, kind, pitch - 3))
    parts.append(text(6, 145, "seen at t = 4:00"))
    kinds = ["past"] * 6 + ["empty"] * 2
    parts += [rect(left + pitch * (t + k - first), 130, kind, pitch - 3) for k, kind in enumerate(kinds)]
    at = left + pitch * (t - first) - 1.5
    parts += [line((at, 24), (at, 156)), text(at, 172, "t", "code", "middle")]
    return svg(180, "Three runs of a forecast, and the hours that a window sees of those that had arrived", parts)


def whole() -> str:
    """Two series of different lengths, and the rows of a batch that hold them."""
    pitch, left, right = 18, 72, 284
    parts = [text(left, 18, "rows of the file"), text(right, 18, "batch, max_slots=8")]
    for k, length in enumerate((8, 5)):
        y = 32 + 30 * k
        parts += [text(6, y + 15, f"series {k}"), *slots(left, y, ["row"] * length, pitch), *arrow(226, 274, y + 10)]
        parts += slots(right, y, ["past"] * length + ["empty"] * (8 - length), pitch)
    return svg(94, "Two series of 8 and 5 rows, each a row of 8 slots in the batch", parts)


def each() -> str:
    """Two windows over a pack of two columns, and the four rows of the batch that they become."""
    left, right = 84, 226
    parts = [text(left, 18, "pack of 2 columns"), text(right, 18, "the batch")]
    parts += [text(338, 18, ".window", "code", "middle"), text(406, 18, ".variate", "code", "middle")]
    for k, kind in enumerate(("past", "past", "target", "target")):
        y = 32 + 26 * k + 10 * (k // 2)
        parts += [*slots(left, y, [kind] * 4), *arrow(184, 218, y + 10), *slots(right, y, [kind] * 4)]
        parts += [text(338, y + 15, str(k // 2), "small", "middle"), text(406, y + 15, str(k % 2), "small", "middle")]
    parts += [text(6, 60, "window 0", "code"), text(6, 122, "window 1", "code")]
    return svg(150, "Two windows of two columns, which are four rows of the batch", parts)


DRAWINGS: dict[str, Callable[[], str]] = {
    "batch": batch,
    "window": window,
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
