"""Pictures of the results: reads `benchmarks/results/*.json`, writes a PNG beside each.

    python benchmarks/plots.py

They are readable in grey: bars differ in hatching, lines in markers and dashes. Each shows the machine, the versions
and the date below. Benchmarks without results are named and left out.
"""

import argparse
import io
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import record
from feeds import USUAL, beside_usual

mpl.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from PIL import Image

STYLES = ({"marker": "o", "linestyle": "-"}, {"marker": "s", "linestyle": "--"}, {"marker": "^", "linestyle": ":"})
SHADES = ("#1b4f72", "#c87f2f", "#7f8c8d", "#d5d8dc")
HATCHES = ("", "///", "...", "xx")
OURS = "#1b4f72"
OTHERS = "#d5d8dc"
BESIDE: dict[str, Any] = {"textcoords": "offset points", "va": "center"}


def caption(about: record.Row) -> str:
    """The machine, the versions and the date of a run."""
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    return (
        f"{about['processor']}, {about['cores']} cores, {about['memory_gb']} GB; Python {about['python']}, {versions}; "
        f"{about['date']}"
    )


def signed(figure: Figure, about: record.Row, note: str = "") -> Figure:
    """The figure with its caption, below everything else."""
    width = int(figure.get_size_inches()[0] * 17)
    text = "\n".join(textwrap.fill(line, width) for line in (note, caption(about)) if line)
    figure.supxlabel(text, fontsize=7, color="#444444")
    return figure


def bars(axes: Axes, names: Sequence[str], values: Sequence[float], texts: Sequence[str], ours: Sequence[bool]) -> None:
    """Horizontal bars from the top, each with its text at its end; ours dark, the others light and hatched."""
    for k, (value, text, own) in enumerate(zip(values, texts, ours)):
        axes.barh(k, value, color=OURS if own else OTHERS, hatch="" if own else "///", edgecolor="#444444", height=0.7)
        axes.annotate(
            text,
            (value, k),
            (4, 0),
            textcoords="offset points",
            va="center",
            fontsize=7,
            bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none"},
        )
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(axis="x", color="#dddddd")
    axes.set_axisbelow(True)


def round_number(value: float) -> str:
    """A figure in two digits below 10, else in three: 1.1, 12, 0.0042, 35k, 1.72M."""
    if value < 10:
        return f"{value:.2g}"
    unit = next(((size, unit) for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if value >= size), (1, ""))
    return f"{value / unit[0]:.3g}{unit[1]}"


# The pictures


SHOWN = {  # what a reader knows; the table has all
    "C loop": "a loop in C that only copies",
    "tensorstash (packed)": "tensorstash",
    "strided index_select (huge pages)": "index_select by hand, huge pages",
    "DataLoader (one packed slice)": "DataLoader, one slice a window",
    "darts": "darts",
    "DataLoader (dict of slices)": "DataLoader, a dict of slices",
}


def compare(about: record.Row, rows: list[record.Row]) -> Figure:
    """Six contestants on one thread, without workers, on all rows."""
    usual = {"workers": 0, "threads": 1, "smaller": False, "shape": ""}
    found = {row["name"]: row for row in rows if all(row.get(what, one) == one for what, one in usual.items())}
    names = sorted(SHOWN.keys() & found.keys(), key=lambda name: -found[name]["windows_per_s"])
    speeds = [found[name]["windows_per_s"] / 1e6 for name in names]
    figure, axes = plt.subplots(figsize=(9, 1.3 + 0.3 * len(names)), layout="constrained")
    texts = [f"{found[name]['windows_per_s']:,.0f}" for name in names]
    bars(axes, [SHOWN[name] for name in names], speeds, texts, [is_ours(found[name]) for name in names])
    axes.set_xlim(0, max(speeds) * 1.15)
    axes.set_xlabel("million windows/s on one thread")
    return signed(figure, about)


def by_shape(rows: Sequence[record.Row]) -> list[record.Row]:
    """The contestants of each shape of data and batches together, the fastest first."""
    shapes = list(dict.fromkeys(row["shape"] for row in rows))
    return sorted(rows, key=lambda row: (shapes.index(row["shape"]), -row["ratio"]))


def label(row: record.Row) -> str:
    """The contestant, with its workers, threads and shape where these are not what one expects."""
    extra = [f"{row[what]} {what}" for what, usual in (("workers", 0), ("threads", 1)) if row.get(what, usual) != usual]
    return ", ".join(filter(None, [row["name"], *extra, row.get("shape")]))


def is_ours(row: record.Row) -> bool:
    return str(row["name"]).startswith(("tensorstash", "stash"))


AXES = {  # axis of the sweep -> label
    "threads": "threads of torch",
    "batch size": "windows per batch",
    "length": "rows per window",
    "columns": "columns",
    "windows": "number of windows",
    "entities": "number of entities",
    "ranks": "processes over one shared segment",
}


def sweep(about: record.Row, rows: list[record.Row]) -> Figure:
    """Two panels for each axis: above the ratio to the raw gather, below the speed; and the memory of the ranks."""
    figure, grid = plt.subplots(4, 4, figsize=(12, 11), layout="constrained", height_ratios=(2, 3, 2, 3))
    panels = list(zip((*grid[0], *grid[2]), (*grid[1], *grid[3])))
    for (above, below), name in zip(panels, AXES):
        own = [row for row in rows if row["axis"] == name]
        lines(above, own, "ratio", "ratio to raw gather")
        lines(below, own, "windows_per_s", "windows/s")
        above.axhline(1, color="black", linewidth=0.6)
        above.set_ylim(0, max(1.2, *(row["ratio"] for row in own)) * 1.05)
        above.tick_params(labelbottom=False)
        lines(below, own, "bare_windows_per_s", "windows/s", bare=True)
        speeds = [row[key] for row in own for key in ("windows_per_s", "bare_windows_per_s")]
        if max(speeds) > 8 * min(speeds):
            below.set_yscale("log")
            below.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            below.yaxis.set_minor_formatter(NullFormatter())
        else:
            below.set_ylim(0, max(speeds) * 1.35)
        below.yaxis.set_major_formatter(FuncFormatter(lambda value, _: round_number(value)))
        below.set_xlabel(AXES[name], fontsize=8)
        below.legend(fontsize=7, frameon=False)
    panels[-1][0].set_axis_off()
    memory(panels[-1][1], [row for row in rows if row["axis"] == "ranks"])
    return signed(
        figure,
        about,
        "The raw gather is index_select on the same rows, at positions computed before. One thread, batches of 1,024 "
        "windows of 120 rows x 8 float32 columns where nothing else is said. Rows per window, columns: batches of 256. "
        "Number of windows: 1 int16 column, batches of 4,096. Entities: 8 rows per window. Processes: a thread each.",
    )


def lines(axes: Axes, rows: list[record.Row], key: str, text: str, bare: bool = False) -> None:
    """A line for each layout over the values of one axis of the sweep; thin and hollow for the raw gather."""
    for k, layout in enumerate(dict.fromkeys(row["layout"] for row in rows)):
        own = [row for row in rows if row["layout"] == layout]
        style: dict[str, Any] = {**STYLES[k], "color": SHADES[k], "markersize": 4, "linewidth": 1.2}
        if bare:
            style |= {"linewidth": 0.5, "markerfacecolor": "white"}
        axes.plot(
            [row["value"] for row in own],
            [row[key] for row in own],
            label=f"{layout}, raw gather" if bare else layout,
            **style,
        )
    powers_of_ten = rows[0]["axis"] in ("windows", "entities")
    axes.set_xscale("log", base=10 if powers_of_ten else 2)
    if not powers_of_ten:
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_ylabel(text, fontsize=8)
    axes.tick_params(labelsize=7)
    axes.grid(color="#dddddd")
    axes.set_axisbelow(True)


def memory(axes: Axes, rows: list[record.Row]) -> None:
    """What all ranks hold together, which should not grow with their number."""
    counts = [str(row["value"]) for row in rows]
    shared, total = ([row[key] for row in rows] for key in ("segment_mb", "pss_mb"))
    own = [both - one for both, one in zip(total, shared)]
    axes.bar(counts, shared, color=OURS, edgecolor="#444444", label="the segment")
    axes.bar(counts, own, bottom=shared, color=OTHERS, hatch="///", edgecolor="#444444", label="batches and else")
    axes.axhline(rows[0]["copy_mb"], color="black", linewidth=0.8, label="one copy")
    axes.legend(fontsize=7, frameon=False, ncols=2, loc="upper left", columnspacing=0.8)
    axes.set_ylim(0, max(total) * 1.3)
    axes.set_xlabel(AXES["ranks"], fontsize=8)
    axes.set_ylabel("PSS of all together, MB", fontsize=8)
    axes.tick_params(labelsize=7)


def formats(about: record.Row, rows: list[record.Row]) -> Figure:
    """Speed of each format as a ratio to the stash, time to the first batch, bytes on disk."""
    names = list(dict.fromkeys(row["name"] for row in rows))
    cases = sorted({(row["shuffle"], row["workers"]) for row in rows}, key=lambda case: (not case[0], case[1]))
    figure, panels = plt.subplots(
        1, 3, figsize=(12, 1.5 + 0.45 * len(names)), layout="constrained", sharey=True, width_ratios=(3, 2, 1.2)
    )
    for panel, key, text in (
        (panels[0], "ratio", "windows/s, as a ratio to the stash\n(logarithmic; longer is better)"),
        (panels[1], "first_batch_s", "seconds from the files to the first batch\n(logarithmic; shorter is better)"),
    ):
        for k, (shuffle, workers) in enumerate(cases):
            own = {row["name"]: row for row in rows if (row["shuffle"], row["workers"]) == (shuffle, workers)}
            at = [names.index(name) + (k - (len(cases) - 1) / 2) * 0.8 / len(cases) for name in own]
            panel.barh(
                at,
                [row[key] for row in own.values()],
                height=0.8 / len(cases),
                label=f"{'shuffled' if shuffle else 'in order'}, {workers} workers",
                color=SHADES[k],
                hatch=HATCHES[k],
                edgecolor="#444444",
                linewidth=0.5,
            )
        panel.set_xscale("log")
        panel.set_xlabel(text, fontsize=8)
    panels[0].axvline(1, color="black", linewidth=0.8)
    disk = {row["name"]: row["disk_mb"] for row in rows}
    panels[2].barh(range(len(names)), [disk[name] for name in names], color=OTHERS, hatch="///", edgecolor="#444444")
    panels[2].set_xlabel("MB on disk", fontsize=8)
    panels[0].set_yticks(range(len(names)), names, fontsize=8)
    panels[0].set_ylim(len(names) - 0.5, -0.5)
    for panel in panels:
        panel.grid(axis="x", color="#dddddd")
        panel.set_axisbelow(True)
        panel.tick_params(labelsize=7)
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=4, fontsize=8, frameon=False
    )
    return signed(figure, about, "The page cache is warm. The tar stream shuffles within a buffer only.")


def pipeline(about: record.Row, rows: list[record.Row]) -> Figure:
    """Preprocessing, first batch, epoch, and the share of an epoch that waits for data."""
    figure, panels = plt.subplots(1, 4, figsize=(12, 1.2 + 0.35 * len(rows)), layout="constrained", sharey=True)
    names = [row["name"] for row in rows]
    ours = [is_ours(row) for row in rows]
    for panel, key, text in (
        (panels[0], "preprocess", "preprocessing"),
        (panels[1], "first_batch", "from the file to the first batch"),
        (panels[2], "epoch", "one epoch of training"),
    ):
        values = [row[f"{key}_s"] for row in rows]
        texts = [f"{row[f'{key}_s']:.2f} s ({round_number(row[f'{key}_ratio'])}x)" for row in rows]
        bars(panel, names, values, texts, ours)
        panel.set_xscale("log")
        panel.set_xlim(min(values) / 2, max(values) * (max(values) / min(values)) ** 0.7 * 2)
        panel.set_xlabel(f"{text}, seconds\n(logarithmic)", fontsize=8)
    waiting = [row["waiting"] * 100 for row in rows]
    bars(panels[3], names, waiting, [f"{share:.0f}%" for share in waiting], ours)
    panels[3].set_xlim(0, 120)
    panels[3].set_xlabel("share of the epoch\nspent waiting for data, %", fontsize=8)
    for panel in panels:
        panel.tick_params(axis="x", labelsize=7)
    return signed(figure, about, "The same model, batches and losses in all. In brackets: times tensorstash.")


def train(about: record.Row, rows: list[record.Row]) -> Figure:
    """An epoch of each model over each data set beside the usual data set: what trains, and what waits."""
    pairs = [*beside_usual(rows)]
    figure, axes = plt.subplots(figsize=(9, 1.5 + 0.5 * len(pairs)), layout="constrained")
    labels = {True: "tensorstash", False: f"{USUAL} (the faster of 0 and 2 workers)"}
    for k, (_, ours, usual, share) in enumerate(pairs):
        for row, at in ((ours, k - 0.2), (usual, k + 0.2)):
            own = row is ours
            length = share.share if own else 1.0
            style: dict[str, Any] = {"height": 0.36, "edgecolor": "#444444"}
            trained = length * (1 - row["waiting"])
            axes.barh(at, trained, color=OURS if own else OTHERS, label="" if k else labels[own], **style)
            waits = "" if k or own else "waiting for data"
            axes.barh(at, length - trained, left=trained, color="white", hatch="////", label=waits, **style)
            end = length
            if own and share.lowest is not None and share.highest is not None:
                end = share.highest
                whiskers = [[length - share.lowest], [share.highest - length]]
                axes.errorbar(length, at, xerr=whiskers, color="black", linewidth=0.8, capsize=2)
            text = f"{share}" if own else "1"
            axes.annotate(f"{text}   {round_number(row['epoch_s'])} s", (end, at), (4, 0), fontsize=7, **BESIDE)
    axes.set_yticks(range(len(pairs)), [name for name, *_ in pairs], fontsize=8)
    axes.set_ylim(len(pairs) - 0.5, -0.5)
    axes.set_xlim(0, 1.35 * max(1.0, *((share.highest or share.share) for *_, share in pairs)))
    axes.set_xlabel("an epoch of training, as a share of that with Dataset and DataLoader in the same round")
    axes.grid(axis="x", color="#dddddd")
    axes.set_axisbelow(True)
    figure.legend(loc="outside upper center", ncols=3, fontsize=8, frameon=False)
    return signed(figure, about)


PICTURES: dict[str, Callable[[record.Row, list[record.Row]], Figure]] = {
    "train": train,
    "compare": compare,
    "sweep": sweep,
    "formats": formats,
    "pipeline": pipeline,
}


def write(figure: Figure, path: Path) -> None:
    """As a PNG of 64 colours, a third of the size of one with all."""
    content = io.BytesIO()
    figure.savefig(content, dpi=100)
    plt.close(figure)
    Image.open(content).convert("RGB").quantize(64).save(path, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="of the results of quick runs, whose figures mean nothing")
    quick = parser.parse_args().quick
    for name, draw in PICTURES.items():
        try:
            about, rows = record.saved(name, quick)
        except FileNotFoundError:
            print(f"{name}: no results yet; python benchmarks/{name}.py")
            continue
        figure = draw(about, rows)
        path = record.folder(quick) / f"{name}.png"
        write(figure, path)
        print(path)


if __name__ == "__main__":
    main()
