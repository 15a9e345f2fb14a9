"""Pictures of the results: reads `benchmarks/results/<kind of machine>/*.json`, and writes a PNG beside each.

    python benchmarks/plots.py

They are readable in grey, on light pages and on dark ones, and each shows the machine, the versions and the date below.
What they show comes from the functions that also make the tables.
"""

import io
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import record
from feeds import HAND, OURS, USUAL, by_case, share_of
from table import familiar, fastest, shown, two_digits

mpl.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from PIL import Image

plt.style.use(Path(__file__).parents[1] / "docs" / "pictures.mplstyle")

DARK, MIDDLE, LIGHT, EDGE = "#1f6ba8", "#85929e", "#d5d8dc", "#767c85"
FEEDS = {  # their colours and labels
    OURS: (DARK, OURS),
    HAND: (MIDDLE, f"{HAND}, scaled once"),
    USUAL: (LIGHT, f"{USUAL} (the faster of 0 and 2 workers)"),
}
BESIDE: dict[str, Any] = {"xytext": (7, 0), "textcoords": "offset points", "va": "center", "fontsize": 8}


def train(about: record.Row, rows: list[record.Row]) -> Figure:
    """An epoch of each model over each data set beside other feeds: what trains, and what waits."""
    cases = by_case(rows)
    figure, axes = plt.subplots(figsize=(9, 1.5 + 0.65 * len(cases)), layout="constrained")
    longest = 1.0
    for k, own in enumerate(cases.values()):
        usual = fastest(own, USUAL)
        for at, (feed, style) in zip((-0.27, 0, 0.27), FEEDS.items()):
            row = fastest(own, feed)
            share = share_of(row, usual)
            bar: dict[str, Any] = {"height": 0.25, "edgecolor": EDGE}
            trained, end = share.share * (1 - row["waiting"]), share.share
            axes.barh(k + at, trained, color=style[0], label="" if k else style[1], **bar)
            waits = "waiting for data" if feed == USUAL and not k else ""
            axes.barh(k + at, share.share - trained, left=trained, color="none", hatch="////", label=waits, **bar)
            if row is not usual:
                end = share.highest
                whiskers(axes, k + at, share.lowest, share.highest)
            text = "1" if row is usual else f"{share}"
            axes.annotate(f"{text}   {record.round_number(row['epoch_s'])} s", (end, k + at), **BESIDE)
            longest = max(longest, end)
    axes.set_xlim(0, 1.5 * longest)
    axes.set_xlabel("an epoch of training, as a share of that with Dataset and DataLoader")
    figure.legend(loc="outside upper center", ncols=2, fontsize=8, frameon=False)
    return finished(figure, axes, [*cases], about)


def compare(about: record.Row, rows: list[record.Row]) -> Figure:
    """What a reader knows, on one thread: its speed, and what part of the loop in C over such columns that is."""
    found = familiar(rows, about)
    figure, axes = plt.subplots(figsize=(9, 1.3 + 0.3 * len(found)), layout="constrained")
    for k, (row, part) in enumerate(found.values()):
        own = record.is_ours(row)
        low, high = (row["windows_per_s"] * row[key] / row["ratio"] for key in ("ratio_low", "ratio_high"))
        axes.barh(k, row["windows_per_s"], color=DARK if own else LIGHT, hatch="" if own else "///", edgecolor=EDGE)
        whiskers(axes, k, low, high)
        axes.annotate(f"{two_digits(row['windows_per_s'])}   {shown(part.median)} of C", (high, k), **BESIDE)
    axes.set_xlim(0, 1.3 * max(row["windows_per_s"] * row["ratio_high"] / row["ratio"] for row, _ in found.values()))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("windows/s on one thread,\nand what part of a bare loop in C over columns of the same layout")
    return finished(figure, axes, [name.replace("`", "") for name in found], about)


def whiskers(axes: Axes, at: float, low: float, high: float) -> None:
    """From the lowest round to the highest: black, in white for what is dark behind it."""
    seam = [withStroke(linewidth=2.5, foreground="white", alpha=0.8)]
    axes.plot([low, high], [at, at], color="black", linewidth=0.8, marker="|", markersize=4, path_effects=seam)


def finished(figure: Figure, axes: Axes, names: Sequence[str], about: record.Row) -> Figure:
    """With names on the left, from the top, and the caption below everything else."""
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    width = int(figure.get_size_inches()[0] * 17)
    figure.supxlabel(textwrap.fill(record.caption(about), width), fontsize=7, color=EDGE)
    return figure


PICTURES: dict[str, Callable[[record.Row, list[record.Row]], Figure]] = {"train": train, "compare": compare}


def write(figure: Figure, path: Path) -> None:
    """As a PNG of 64 colours, a third of the size of one with all."""
    content = io.BytesIO()
    figure.savefig(content, dpi=100)
    plt.close(figure)
    Image.open(content).quantize(64).save(path, optimize=True)


def main() -> None:
    for name, draw in PICTURES.items():
        for kind, (about, rows) in record.kinds(name).items():
            path = record.RESULTS / kind / f"{name}.png"
            write(draw(about, rows), path)
            print(path)


if __name__ == "__main__":
    main()
