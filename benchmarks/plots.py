"""Pictures of the results: reads `benchmarks/results/<kind of machine>/*.json`, and writes a PNG beside each.

    python benchmarks/plots.py

They are readable in grey, and each shows the machine, the versions and the date below. What they show comes from the
functions that also make the tables.
"""

import io
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import record
from feeds import USUAL, beside_usual
from table import familiar

mpl.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

OURS = "#1b4f72"
OTHERS = "#d5d8dc"
EDGE = "#444444"
BESIDE: dict[str, Any] = {"xytext": (4, 0), "textcoords": "offset points", "va": "center", "fontsize": 8}


def train(about: record.Row, rows: list[record.Row]) -> Figure:
    """An epoch of each model over each data set beside the usual data set: what trains, and what waits."""
    pairs = [*beside_usual(rows)]
    figure, axes = plt.subplots(figsize=(9, 1.5 + 0.5 * len(pairs)), layout="constrained")
    labels = {True: "tensorstash", False: f"{USUAL} (the faster of 0 and 2 workers)"}
    for k, (_, ours, usual, share) in enumerate(pairs):
        for row, at in ((ours, k - 0.2), (usual, k + 0.2)):
            own = row is ours
            length = share.share if own else 1.0
            style: dict[str, Any] = {"height": 0.36, "edgecolor": EDGE}
            trained = length * (1 - row["waiting"])
            axes.barh(at, trained, color=OURS if own else OTHERS, label="" if k else labels[own], **style)
            waits = "" if k or own else "waiting for data"
            axes.barh(at, length - trained, left=trained, color="white", hatch="////", label=waits, **style)
            end = length
            if own and share.lowest is not None and share.highest is not None:
                end = share.highest
                whiskers(axes, at, length, share.lowest, share.highest)
            text = f"{share}" if own else "1"
            axes.annotate(f"{text}   {record.round_number(row['epoch_s'])} s", (end, at), **BESIDE)
    axes.set_xlim(0, 1.5 * max(1.0, *((share.highest or share.share) for *_, share in pairs)))
    axes.set_xlabel("an epoch of training, as a share of that with Dataset and DataLoader in the same round")
    figure.legend(loc="outside upper center", ncols=3, fontsize=8, frameon=False)
    return finished(figure, axes, [name for name, *_ in pairs], about)


def compare(about: record.Row, rows: list[record.Row]) -> Figure:
    """A few contestants that a reader knows, on one thread: their speed beside that of the loop in C."""
    found = familiar(rows)
    figure, axes = plt.subplots(figsize=(9, 1.3 + 0.3 * len(found)), layout="constrained")
    for k, (row, ratio) in enumerate(found.values()):
        own = record.is_ours(row)
        axes.barh(k, row["ratio"], color=OURS if own else OTHERS, hatch="" if own else "///", edgecolor=EDGE)
        whiskers(axes, k, row["ratio"], row["ratio_low"], row["ratio_high"])
        axes.annotate(ratio, (row["ratio_high"], k), **BESIDE)
    axes.set_xlim(0, max(row["ratio_high"] for row, _ in found.values()) * 1.25)
    axes.set_xlabel("windows/s on one thread, as a ratio to a loop in C in the same rounds")
    return finished(figure, axes, [*found], about)


def whiskers(axes: Axes, at: float, middle: float, low: float, high: float) -> None:
    """From the lowest round to the highest."""
    axes.errorbar(middle, at, xerr=[[middle - low], [high - middle]], color="black", linewidth=0.8, capsize=2)


def finished(figure: Figure, axes: Axes, names: Sequence[str], about: record.Row) -> Figure:
    """With names on the left, from the top, and the caption below everything else."""
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(axis="x", color="#dddddd")
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
    Image.open(content).convert("RGB").quantize(64).save(path, optimize=True)


def main() -> None:
    for name, draw in PICTURES.items():
        for kind, (about, rows) in record.kinds(name).items():
            path = record.RESULTS / kind / f"{name}.png"
            write(draw(about, rows), path)
            print(path)


if __name__ == "__main__":
    main()
