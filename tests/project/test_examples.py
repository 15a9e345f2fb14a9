"""The README, the pages of the guide and the examples do what they say."""

import ast
import os
import re
import warnings
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
import pytest
import torch
from torch import distributed

from tests import processes
from tests.project.pages import OF_OTHERS, README, ROOT, blocks, pages, pictures, run

# of arguments or several processes: below
ELSEWHERE = {"train_ddp.py", "train_ray.py", "dlinear.py", "events.py", "pretrain.py"}
OTHERS = {"huggingface_trainer.py", "lightning_datamodule.py", "other_arrays.py"}  # and coming_from_*: tests/adapters
EXAMPLES = sorted(
    path
    for path in (ROOT / "examples").glob("*.py")
    if path.name not in ELSEWHERE | OTHERS and not path.name.startswith("coming_from_")
)
GAP_WARNING = r"Gaps cost 13% of the windows: .* are left at frequency '1h'; .* shorter windows lose fewer\."


PAGES = pages()
# tests/project/test_ddp.py runs the code for torchrun on several ranks
RUN_HERE = [path for path in PAGES if path.name not in OF_OTHERS and path.name != "torchrun.md"]


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


RANKS = ROOT / "docs" / "guide" / "ranks.md"


@pytest.fixture
def workplace(shm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory in which the paths of the README hold, and where what it writes may lie; one for what it shares."""
    (tmp_path / "examples").symlink_to(ROOT / "examples", target_is_directory=True)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    plt.close("all")


@pytest.mark.usefixtures("workplace")
def test_every_python_block_of_the_readme_runs_and_gives_the_values_it_states() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, compared = run(README)
    assert len(blocks(README)) >= 2
    assert compared >= 2


def test_pages_with_code_are_found() -> None:
    assert {"windows.md", "forecasting.md", *OF_OTHERS} <= {path.name for path in PAGES}


@pytest.mark.usefixtures("workplace")
@pytest.mark.filterwarnings(r"ignore:Gaps cost \d+% of the windows:UserWarning")
@pytest.mark.filterwarnings("ignore:1 of 2 series end before 2024-01-03 15")
@pytest.mark.filterwarnings("ignore:require= leaves out 50% of the windows.* 2 of 4 are left")
@pytest.mark.filterwarnings("error")  # also what pyproject.toml ignores
@pytest.mark.parametrize("path", RUN_HERE, ids=named)
def test_every_python_block_of_a_page_runs_and_gives_the_values_it_states(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And prints what the page shows; how much memory is free differs."""
    run(path)
    shown = re.findall(r"^```text\n(.*?)^```$", path.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    texts = [re.sub(r"of [\d,]+ MB free", "", text) for text in (capsys.readouterr().out, "".join(shown))]
    assert texts[0].splitlines() == texts[1].splitlines()
    for picture in pictures(path):
        check_picture(Path(picture))
        assert size_of(Path(picture)) == size_of(ROOT / "docs" / "pictures" / picture), "make pictures"


@pytest.mark.parametrize("path", PAGES, ids=named)
def test_code_on_a_page_fits_its_width(path: Path) -> None:
    """88 columns; the values that are stated after it may be longer."""
    lines = [line.partition("  # -> ")[0] for block in blocks(path) for line in block.splitlines()]
    assert [line for line in lines if len(line) > 88] == []


def test_a_page_that_states_another_value_is_found(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("```python\nx = 2\nx + 1  # -> 4\n```\n")
    with pytest.raises(AssertionError, match=r"^page\.md: x \+ 1 is 3$"):
        run(tmp_path / "page.md")


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize("page", [README, ROOT / "docs" / "index.md"], ids=["README", "index"])
def test_the_first_code_is_short_and_prints_what_stands_below_it(
    page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the weather file of a clone; both the code and what it prints are on the first screen."""
    text = page.read_text("utf-8")
    found = re.search(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert found
    code, printed = found.groups()
    assert code == blocks(page)[0] == blocks(README)[0]
    assert text[: found.end()].count("\n") < 50
    assert len(code.split("\nprint")[0].splitlines()) <= 12
    exec(compile(code, page.name, "exec"), {})
    assert capsys.readouterr().out == printed


@pytest.mark.usefixtures("workplace")
@pytest.mark.filterwarnings("ignore:Gaps cost 13% of the windows:UserWarning")
def test_the_mean_over_ranks_in_the_guide_is_that_of_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    mean_over_ranks = run(RANKS)[0]["mean_over_ranks"]
    weight = torch.tensor(3.0, dtype=torch.float64, requires_grad=True)
    inputs = [torch.tensor(rank, dtype=torch.float64) for rank in ([1.0, 2.0, 4.0], [8.0, 16.0, 99.0], [99.0])]
    valid = [torch.tensor(rank) for rank in ([True] * 3, [True, True, False], [False])]
    expected = torch.cat([values[mask] for values, mask in zip(inputs, valid)]).mean()

    def all_reduce(sums: torch.Tensor) -> None:
        sums.copy_(torch.tensor([3.0 * 31.0, 5.0]))

    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "get_world_size", lambda: 3)
    monkeypatch.setattr(distributed, "all_reduce", all_reduce)
    gradients: list[torch.Tensor] = []
    for values, mask in zip(inputs, valid):
        mean, loss = mean_over_ranks(weight * values, mask)
        assert mean == 3.0 * expected
        gradients += torch.autograd.grad(loss, weight)
    assert torch.stack(gradients).mean() == expected


def test_the_mean_over_ranks_of_the_example_is_that_of_the_guide() -> None:
    """Apart from the types of its arguments, and the lines that it is broken into."""
    texts = [(ROOT / "examples" / "masked_mean.py").read_text("utf-8"), "\n".join(blocks(RANKS))]
    parts = [part for text in texts for part in ast.parse(text).body if isinstance(part, ast.FunctionDef)]
    one, other = ([ast.dump(line) for line in part.body] for part in parts if part.name == "mean_over_ranks")
    assert one == other


def test_the_claims_of_every_example_are_checked() -> None:
    assert [path.name for path in EXAMPLES] == sorted(CLAIMS) == sorted(PICTURES)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs_and_what_it_prints_holds(path: Path) -> None:
    out = path.parent / "out"
    before = {picture: picture.stat().st_mtime_ns for picture in out.glob("*.png")}
    done = processes.run(path, env=os.environ | {"MPLBACKEND": "Agg"}, warn="default", nested=True)
    assert done.returncode == 0, done.stderr
    CLAIMS[path.name](done.stdout, done.stderr)
    for picture in PICTURES[path.name]:
        assert before.get(out / picture) != (out / picture).stat().st_mtime_ns
        check_picture(out / picture)


def test_dlinear_learns_a_file_of_the_form_of_etth1(tmp_path: Path) -> None:
    """Waves of a day and of a week, with noise of 0.005 of their variance; the last hours are not to be used."""
    hours = np.arange(20 * 30 * 24 + 50)
    rng = np.random.default_rng(0)
    waves = [np.sin(2 * np.pi * (hours / period + k / 7)) for k, period in enumerate([24, 168] * 3 + [24])]
    columns = {name: wave * 2**0.5 * 30 + 500 for name, wave in zip("ABCDEFG", waves)}
    noisy = {name: values + rng.normal(0, 3, len(hours)) for name, values in columns.items()}
    for values in noisy.values():
        values[20 * 30 * 24 :] = 1e6
    dates = np.datetime64("2016-07-01", "ms") + hours * np.timedelta64(3_600_000, "ms")
    pl.DataFrame({"date": dates, **noisy}).write_csv(tmp_path / "h1.csv", datetime_format="%Y-%m-%d %H:%M:%S")
    script = ROOT / "examples" / "dlinear.py"
    done = processes.run(script, tmp_path / "h1.csv", "--seeds", "1", "--epochs", "1", warn="default")
    assert done.returncode == 0, done.stderr
    assert "standard, of the 8,640 rows seen" in done.stdout
    assert "8,209, 2,785 and 2,785 windows" in done.stdout
    ((mse, mae),) = re.findall(r"^mean: +MSE (\d\.\d{4})  MAE (\d\.\d{4})  \(paper", done.stdout, re.MULTILINE)
    assert 0.004 < float(mse) < 0.1  # the noise; a forecast of the mean has 1
    assert float(mae) ** 2 < float(mse)


def test_events_are_told_apart_by_their_model() -> None:
    """Of few customers, so that it is quick."""
    script = ROOT / "examples" / "events.py"
    done = processes.run(script, "--customers", "600", warn="default")
    assert done.returncode == 0, done.stderr
    losses = [float(loss) for loss in re.findall(r"^epoch \d: loss (\d\.\d+)$", done.stdout, re.MULTILINE)]
    assert losses == sorted(losses, reverse=True)
    right, chance = re.findall(r"(\d+)% (?:right|by chance)", done.stdout)
    assert int(right) > 3 * int(chance)
    assert "│ customer ┆ t " in done.stdout


def check_quickstart(printed: str, errors: str) -> None:
    assert re.search(GAP_WARNING, errors)
    assert "100%|" in errors  # the progress bar
    assert "26,115 rows" in printed
    assert "time has 45 gaps in these data" in printed
    found = dict(re.findall(r"^  (model|last value|24 h before) +((?:\d+\.\d\d *){4})$", printed, re.MULTILINE))
    errors_of = {name: [float(value) for value in values.split()] for name, values in found.items()}
    for baseline in ("last value", "24 h before"):
        for model, other in zip(errors_of["model"], errors_of[baseline], strict=True):
            assert model < 0.9 * other
    rates = re.findall(r"^  (\S.*?) +([\d,]+) +(\d+)%$", printed, re.MULTILINE)
    assert [name for name, _, _ in rates] == [
        "tensorstash",
        "DataLoader, dict of slices",
        "DataLoader, one packed slice",
    ]
    for _, windows_per_second, waiting in rates:
        assert int(windows_per_second.replace(",", "")) > 0
        assert 0 <= int(waiting) <= 100


def check_masked_mean(printed: str, errors: str) -> None:
    """The ranks have as many batches each, their windows add up, and the mean is that of one process."""
    ranks = re.findall(r"^rank (\d): (\d+) batches of 256, ([\d,]+) windows$", printed, re.MULTILINE)
    assert [rank for rank, _, _ in ranks] == ["0", "1", "2"]
    assert len({batches for _, batches, _ in ranks}) == 1
    found = re.findall(r"^(\d\.\d{10})  (.*)$", printed, re.MULTILINE)
    total = sum(int(windows.replace(",", "")) for _, _, windows in ranks)
    assert [said for _, said in found] == [
        "the mean over the windows of 3 ranks",
        f"in one process over {total:,} windows: equal",
        "the mean of the ranks' means, which counts filler: not equal",
    ]
    over_ranks, alone, of_means = (mean for mean, _ in found)
    assert over_ranks == alone != of_means


def check_forecast(printed: str, _: str) -> None:
    """Better than the day before; a row for each of the 24 hours behind the last one of each airport, in order."""
    found = re.search(r"^1,971 windows of December: MAE (\S+) °F, of the value 24 h before (\S+) °F$", printed, re.M)
    assert found
    assert float(found[1]) < 0.8 * float(found[2])
    within = re.search(r"^(\d+)% of the values lie between the quantiles 0\.1 and 0\.9$", printed, re.M)
    assert within
    assert 60 < int(within[1]) < 95
    frame = pl.read_parquet(ROOT / "examples" / "out" / "next_day.parquet")
    weather = pl.read_parquet(ROOT / "examples" / "data" / "nyc_weather.parquet")
    assert frame.columns == ["origin", "time_hour", "low", "median", "high"]
    assert frame.schema["time_hour"] == weather.schema["time_hour"]
    ends = weather.group_by("origin", maintain_order=True).agg(pl.col("time_hour").max())
    hours = [(origin, end + timedelta(hours=k)) for origin, end in ends.iter_rows() for k in range(1, 25)]
    assert list(frame.select("origin", "time_hour").iter_rows()) == hours
    assert frame.select(pl.col("low", "median", "high").is_between(-20, 80).all()).row(0) == (True,) * 3


def check_backtest(printed: str, _: str) -> None:
    """Every fold, airport and time ahead is forecast better than by the day before."""
    assert "shape: (85_896, 8)" in printed
    rows = re.findall(r"^│ (?:\d|[A-Z]{3}) .*┆ (\d+\.\d+) +┆ (\d+\.\d+) +│$", printed, re.MULTILINE)
    assert len(rows) == 4 + 3 + 4
    assert all(float(dlinear) < 0.97 * float(before) for dlinear, before in rows)
    assert [float(dlinear) for dlinear, _ in rows[-4:]] == sorted(float(dlinear) for dlinear, _ in rows[-4:])


def test_a_pre_training_that_is_killed_goes_on_with_the_windows_that_are_left() -> None:
    done = processes.run(ROOT / "examples" / "pretrain.py", "--windows", "120", warn="default", nested=True)
    assert done.returncode == 0, done.stderr
    assert "Terminating" not in done.stderr
    killed, learned, resumed = done.stdout.splitlines()
    assert killed == "2 ranks were killed after 3 steps: 48 of 120 windows seen"
    assert re.fullmatch(r"error of a patch: \d+\.\d{3}, at the end \d+\.\d{3}", learned)
    assert resumed == "3 ranks resumed: 72 windows were left, none came twice and none was lost"


def size_of(path: Path) -> tuple[int, ...]:
    from matplotlib.image import imread

    return imread(path).shape[:2]


def check_picture(path: Path) -> None:
    """A picture that shows something: many shades, in an image of a fair size."""
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    from matplotlib.image import imread

    image = imread(path)
    assert min(image.shape[:2]) > 300
    assert len({tuple(pixel) for pixel in image[::4, ::4].reshape(-1, image.shape[2])}) > 4


def check_serve(printed: str, _: str) -> None:
    trained, unknown, same = printed.splitlines()
    assert re.fullmatch(r"trained on [\d,]+ rows; the reference has \d+ kB, the service keeps 96 rows each", trained)
    assert unknown.startswith("an unknown airport: 400, {'error': \"unknown='error' takes only entities that like= has")
    assert same == "72 of 72 forecasts are those of the whole data"


def check_forecast_runs(printed: str, _: str) -> None:
    """The example asserts what its windows see; forecasts help, and each site has a row for each hour of tomorrow."""
    assert "every forecast arrived 1 to 6 hours before its window" in printed
    same, of = re.findall(r"^([\d,]+) of ([\d,]+) windows do not change if ", printed, re.MULTILINE)[0]
    assert 0 < int(same.replace(",", "")) < int(of.replace(",", ""))
    error, before = re.findall(r"error (\d+\.\d\d) MW, of the day before (\d+\.\d\d) MW$", printed, re.MULTILINE)[0]
    assert float(error) < 0.8 * float(before)
    assert "shape: (72, 3)" in printed
    assert "┆ 2024-04-10 00:00:00 ┆" in printed


CLAIMS = {
    "backtest.py": check_backtest,
    "forecast.py": check_forecast,
    "forecast_runs.py": check_forecast_runs,
    "masked_mean.py": check_masked_mean,
    "quickstart.py": check_quickstart,
    "serve.py": check_serve,
}
PICTURES: dict[str, list[str]] = {
    "backtest.py": [],
    "forecast.py": ["next_day.png"],
    "forecast_runs.py": ["versions.png"],
    "masked_mean.py": [],
    "quickstart.py": ["forecast.png", "coverage.png"],
    "serve.py": [],
}
