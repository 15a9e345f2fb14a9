"""Every figure of speed that a page states, and the results that it is of.

    python benchmarks/quotes.py     # writes the figures of the results into the pages

What a page says of one kind of machine is of the newest results; ranges are over all kinds. The words around a figure
are not changed: read the sentences after a new run. `tests/project/test_figures.py` fails for one that no quote has.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import record
import table
from feeds import HAND, OURS, USUAL, by_case, share_of
from timing import Rounds

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Quote:
    """A place on a page, as a regular expression with a group for each figure, and the figures of the results."""

    page: str
    pattern: str
    figures: tuple[str, ...]

    def found(self, text: str) -> "re.Match[str]":
        """Where it stands in the text of its page."""
        match = re.search(self.pattern, text, re.MULTILINE)
        if match is None:
            raise ValueError(f"{self.page} has nothing like: {self.pattern}")
        return match

    def renewed(self, text: str) -> str:
        """The text of its page with the figures of the results."""
        match = self.found(text)
        for group, figure in reversed([*enumerate(self.figures, 1)]):
            text = text[: match.start(group)] + figure + text[match.end(group) :]
        return text


def sentence(page: str, words: str, *figures: str) -> Quote:
    """Words of a page, wherever its lines break, with `{}` for each figure."""
    parts = [r"\s+".join(re.escape(word) for word in part.split(" ")) for part in words.split("{}")]
    return Quote(page, r"(\d[\d,]*(?:\.\d+)?)".join(parts), figures)


def newest(benchmark: str, /, **labels: Any) -> tuple[str, record.Row, list[record.Row]]:
    """The kind of machine on which a benchmark ran last, with a row of these labels; about the run, and its rows."""
    kinds = [
        (about["date"], kind)
        for kind, (about, rows) in record.kinds(benchmark).items()
        if any(labels.items() <= row.items() for row in rows)
    ]
    _, kind = max(kinds)
    return kind, *record.kinds(benchmark)[kind]


def row_of(benchmark: str, /, **labels: Any) -> record.Row:
    """The first row with these labels, of the newest results that have it."""
    *_, rows = newest(benchmark, **labels)
    return next(row for row in rows if labels.items() <= row.items())


def extent(benchmark: str, ours: str, *others: str, **labels: Any) -> tuple[float, float]:
    """The lowest and the highest median, over all kinds of machines, of how many times as fast ours is as others."""
    ratios = [
        Rounds(row["seconds"]).ratio(ours, other).median
        for _, rows in record.kinds(benchmark).values()
        for row in rows
        if labels.items() <= row.items()
        for other in others
        if {ours, other} <= row["seconds"].keys()
    ]
    return min(ratios), max(ratios)


def decimals(values: tuple[float, ...], digits: int = 2) -> tuple[str, ...]:
    return tuple(f"{value:.{digits}f}" for value in values)


def speed(row: record.Row, name: str, batch: int) -> str:
    """Windows/s of one contestant, in two digits."""
    return table.two_digits(batch / median(row["seconds"][name]))


# The pages


def quotes() -> list[Quote]:
    """All of them."""
    return [*of_readme(), *of_landing_page(), *of_benchmarks(), *of_guide(), *of_decisions()]


def of_readme() -> Iterator[Quote]:
    (_, about, rows), (kind, trained, _) = newest("compare"), newest("train")
    page = "README.md"
    yield Quote(page, r"^(\| batches of (?:.+\n)+)", (table.readme(about, rows) + "\n",))
    yield Quote(page, r"\(benchmarks/results/([^/]+)/train\.png\)", (kind,))
    if machine(about) != machine(trained):
        raise ValueError(f"{page} has one machine for table and picture; their results are of two.")
    yield sentence(page, "Table and picture: {} cores of AMD EPYC servers with {} MB of cache;", *machine(about))
    words = "a loader is {} to {} times as fast as they are, and an epoch takes {} to {} times as long as with them."
    yield sentence(page, words, *decimals(by_hand() + epochs(HAND)))


def of_landing_page() -> Iterator[Quote]:
    *_, rows = newest("compare")
    speeds = {row["name"]: table.two_digits(row["windows_per_s"]) for row in reversed(table.at_one_speed(rows))}
    words = "makes {} windows/s of 120 steps and 8 columns, and a `DataLoader` over slices of them {}"
    figures = speeds["tensorstash (packed)"], speeds["DataLoader (dict of slices)"]
    yield sentence("docs/index.md", words, *figures)


def machine(about: record.Row) -> tuple[str, str]:
    """Cores and MB of cache of a machine of the kind that the README names."""
    if about["processor"] != "AMD EPYC":
        raise ValueError(f"README.md names an AMD EPYC server; the newest results are of {about['processor']}.")
    return f"{about['cores']}", f"{max(about['caches_mb'].values()):.0f}"


def of_benchmarks() -> Iterator[Quote]:
    page = "docs/explanation/benchmarks.md"
    words = "an epoch takes {} to {} times as long as with the lines by hand, and {} to {} times as long as with a"
    yield sentence(page, words, *decimals(epochs(HAND) + epochs(USUAL)))
    loop = {"section": "The whole loop"}
    raw = extent("bench_batch", "loop", "raw gather", case="1,024 x 120, separate", **loop)
    yield sentence(page, "the loop is {} to {} times as fast as one bare `index_select`**", *decimals(raw))
    yield sentence(page, "**{} to {} times as fast as the best lines by hand**", *decimals(by_hand()))
    plain = extent("bench_batch", "loop, no kernel", "raw gather", **loop)
    yield sentence(page, "Without the kernel, the loop is {} to {} times as fast as", *decimals(plain))
    asked = extent("bench_batch", "loop", "loop, no prefetches", **loop)
    yield sentence(page, "Without its prefetches, it takes {} to {} times as long", *decimals(asked))
    first = row_of("bench_mix")["first"]
    milliseconds = (f"{first[name] * 1e3:.0f}" for name in ("4 stashes", "1,000 stashes"))
    yield sentence(page, "after {} ms with 4 stashes and after {} ms with 1,000.", *milliseconds)


def of_guide() -> Iterator[Quote]:
    *_, rows = newest("bench_batch", section="Windows per batch")
    loops = [row for row in rows if row["section"] == "Windows per batch"]
    sizes = {row["batch"]: row["batch"] / median(row["seconds"]["loop"]) for row in loops}
    ends = (f"{end / 1e6:.1f}" for end in (min(sizes.values()), max(sizes.values())))
    slow = "docs/how-to/slow.md"
    yield sentence(slow, "gathers {} to {} million windows per second", *ends)
    yield sentence(slow, "in batches of {} to {} windows.", f"{min(sizes):,}", f"{max(sizes):,}")

    for name, megabytes in row_of("bench_share")["megabytes"].items():
        count = name.removeprefix("processes: ")
        yield sentence("docs/explanation/memory.md", f"| {count} | {{}} |", f"{megabytes:,.0f}")

    words = "makes {} windows/s of at most 256 events, {} times as many as by `searchsorted` by hand, and {} times"
    events = row_of("bench_events")
    others = [Rounds(events["seconds"]).ratio("tensorstash", other).median for other in ("by hand", "per sample")]
    figures = speed(events, "tensorstash", 1024), f"{others[0]:.1f}", f"{others[1]:.0f}"
    yield sentence("docs/guide/events.md", words, *figures)

    blocks, drawn = (row_of("bench_disk", case=case) for case in ("ts.Blocks(256)", "shuffle=True"))
    mapped = [Rounds(row["seconds"]).ratio("ts.open", "NumPy memory map").median for row in (blocks, drawn)]
    words = "makes {} windows/s of 64 rows, and `shuffle=True` {}: {} and {} times as many as"
    speeds = (speed(row, "ts.open", 256) for row in (blocks, drawn))
    yield sentence("docs/guide/on-disk.md", words, *speeds, *(f"{ratio:.1f}" for ratio in mapped))

    words, shards = (
        "A rank over 16 shards is {} to {} times as fast as",
        extent("bench_cluster", "16 shards", "one stash"),
    )
    yield sentence("docs/guide/several-machines.md", words, *decimals(shards))

    packings = (
        ("as by vectorized numpy", "by hand in numpy", 2),
        ("as it is padded as in Chronos-1", "as Chronos-1 does, written anew", 0),
        ("as by first fit", "as uni2ts does, written anew", 0),
    )
    for words, other, digits in packings:
        ratios = decimals(extent("bench_pretrain", "tensorstash, rows of 2,048", other), digits)
        yield sentence("docs/how-to/pretraining.md", f"{{}} to {{}} times as fast {words}", *ratios)

    printed = "\n".join(row_of("bench_cli")["printed"])
    yield Quote("docs/guide/command-line.md", r"^( +first batch +windows/s(?:.*\n)+?)```", (printed + "\n",))


def of_decisions() -> Iterator[Quote]:
    feed = {"name": "DataLoader (tensors of starts)", "shape": "", "threads": 1}
    words = "a `DataLoader` over tensors of starts falls from {} to {} of the speed of a loop in C."
    *_, rows = newest("compare", workers=2, **feed)
    falls = (part(rows, **feed, workers=workers) for workers in (0, 2))
    yield sentence("docs/decisions/0004-no-workers.md", words, *falls)

    page = "docs/decisions/0006-native-kernel.md"
    *_, rows = newest("compare", name="index matrix")
    for words, name in (
        ("`index_select` of a strided view reaches {} of the speed", "unfold + index_select"),
        ("`sliding_window_view` {}, and", "sliding_window_view"),
        ("an index matrix (`column[starts[:, None] + arange]`) {}.", "index matrix"),
    ):
        yield sentence(page, words, part(rows, name=name, threads=1))


def part(rows: list[record.Row], **labels: Any) -> str:
    """What part of the loop in C over columns of the same layout a contestant reaches."""
    row = next(row for row in rows if labels.items() <= row.items())
    found = table.part_of_loop(row, rows)
    return "" if found is None else table.shown(found.median)


def by_hand() -> tuple[float, float]:
    return extent("bench_batch", "loop", "index_select in chunks", "numba in chunks", section="By hand")


def epochs(feed: str) -> tuple[float, float]:
    """The least and the largest time of an epoch of ours as a share of another feed's, over all kinds of machines."""
    shares = [
        share_of(table.fastest(own, OURS), table.fastest(own, feed)).share
        for _, rows in record.kinds("train").values()
        for own in by_case(rows).values()
    ]
    return min(shares), max(shares)


def main() -> None:
    for quote in quotes():
        path = ROOT / quote.page
        text = path.read_text("utf-8")
        path.write_text(quote.renewed(text), "utf-8")
    print(f"{len(quotes())} places on {len({quote.page for quote in quotes()})} pages have the figures of the results.")


if __name__ == "__main__":
    main()
