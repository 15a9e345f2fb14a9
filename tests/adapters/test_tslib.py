"""TSLib's data provider against its rules, written down once more with pandas and scikit-learn: each window, each bit.

The rules are those of `Dataset_ETT_hour` and `Dataset_Custom` in https://github.com/thuml/Time-Series-Library.
"""

import runpy
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "coming_from_tslib.py"))
data_provider, Items = EXAMPLE["data_provider"], EXAMPLE["Items"]

MONTH = 30 * 24
SEQ, LABEL, PRED = 96, 48, 24
COLUMNS = ["HUFL", "OT", "MUFL", *"abcd"]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file like ETTh1.csv: hourly, 7 variables, some hours more than 20 months."""
    random = np.random.default_rng(0)
    rows = 20 * MONTH + 50
    frame = pd.DataFrame(random.standard_normal((rows, 7)).cumsum(0), columns=COLUMNS)
    frame.insert(0, "date", pd.date_range("2016-07-01", periods=rows, freq="h"))
    target = tmp_path_factory.mktemp("ett") / "ETTh1.csv"
    frame.to_csv(target, index=False)
    return target


def arguments(path: Path, **others: Any) -> Namespace:
    """What TSLib's `run.py` parses, as far as data need it."""
    lengths = {"seq_len": SEQ, "label_len": LABEL, "pred_len": PRED, "batch_size": 512}
    names = {"data": "ETTh1", "features": "M", "target": "OT", "embed": "timeF", "freq": "h"}
    return Namespace(root_path=path.parent, data_path=path.name, **lengths | names | others)


def marks(dates: pd.DatetimeIndex, embed: str) -> NDArray[np.float64]:
    if embed != "timeF":
        fields = [dates.month, dates.day, dates.day_of_week, dates.hour]
    else:
        fields = [dates.hour / 23, dates.day_of_week / 6, (dates.day - 1) / 30, (dates.day_of_year - 1) / 365]
        fields = [field - 0.5 for field in fields]
    return np.stack([np.asarray(field, np.float64) for field in fields], 1)


def rules(path: Path, args: Namespace) -> tuple[NDArray[np.float64], NDArray[np.float64], list[int], Any]:
    """The scaled values and the marks of all rows, where the parts end, and the scaler of sklearn."""
    from sklearn.preprocessing import StandardScaler  # takes seconds to import

    frame = pd.read_csv(path, parse_dates=["date"])
    names = COLUMNS
    if args.data == "custom":
        names = [name for name in COLUMNS if name != args.target] + [args.target]
    values = frame[[args.target] if args.features == "S" else names].to_numpy()
    train, test = int(len(frame) * 0.7), int(len(frame) * 0.2)
    custom = [train, len(frame) - test, len(frame)]
    ends = custom if args.data == "custom" else [12 * MONTH, 16 * MONTH, 20 * MONTH]
    scaler = StandardScaler().fit(values[: ends[0]])
    return scaler.transform(values), marks(pd.DatetimeIndex(frame["date"]), args.embed), ends, scaler


@pytest.mark.parametrize(
    "others",
    [{}, {"embed": "fixed"}, {"features": "S"}, {"features": "MS"}, {"data": "custom"}],
    ids=lambda others: "-".join(others.values()) or "plain",
)
@pytest.mark.parametrize(("flag", "part"), [("train", 0), ("val", 1), ("test", 2)])
def test_every_window_is_that_of_the_rules(path: Path, flag: str, part: int, others: dict[str, str]) -> None:
    args = arguments(path, **others)
    scaled, stamps, ends, scaler = rules(path, args)
    begin = 0 if part == 0 else ends[part - 1] - SEQ
    rows = slice(begin, ends[part])
    data, mark = torch.from_numpy(scaled[rows]).float(), torch.from_numpy(stamps[rows]).float()

    data_set, loader = data_provider(args, flag)
    assert len(data_set) == len(data) - SEQ - PRED + 1
    torch.manual_seed(3)
    ids = [*EXAMPLE["Order"](data_set.windows, flag != "test")]
    torch.manual_seed(3)
    ours = [torch.cat(tensors) for tensors in zip(*loader, strict=True)]
    assert sorted(ids) == [*range(len(data_set))]
    first = torch.tensor(ids)[:, None]
    past, future = first + torch.arange(SEQ), first + torch.arange(SEQ - LABEL, SEQ + PRED)
    for tensor, expected in zip(ours, (data[past], data[future], mark[past], mark[future]), strict=True):
        assert torch.equal(tensor, expected)
    assert data_set.scale
    back = data_set.inverse_transform(scaled[:50])
    np.testing.assert_allclose(back, scaler.inverse_transform(scaled[:50]), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("embed", "freq"), [("fixed", "t"), ("timeF", "t"), ("timeF", "15min"), ("timeF", "min")])
def test_marks_of_quarters_of_an_hour(tmp_path: Path, embed: str, freq: str) -> None:
    """Of ETTm files the number of the quarter, `minute // 15`; by `timeF` the minute comes first."""
    dates = pd.date_range("2016-07-01", periods=20 * 4 * MONTH, freq="15min")
    pd.DataFrame({"date": dates, "OT": np.arange(len(dates)) * 1.0}).to_csv(tmp_path / "ETTm1.csv", index=False)
    args = arguments(tmp_path / "ETTm1.csv", data="ETTm1", embed=embed, freq=freq, features="S")
    _, loader = data_provider(args, "test")
    minute = np.asarray(dates.minute)[:, None]
    numbers = np.concatenate([marks(dates, embed), minute // 15], 1)
    expected = numbers if embed == "fixed" else np.concatenate([minute / 59 - 0.5, marks(dates, embed)], 1)
    first = 16 * 4 * MONTH - SEQ
    assert torch.equal(next(iter(loader))[2][0], torch.from_numpy(expected[first : first + SEQ]).float())


@pytest.mark.parametrize("features", ["S", "M"])
def test_a_weekly_file_with_integers(tmp_path: Path, features: str) -> None:
    """As national_illness.csv, whose OT is an integer."""
    dates = pd.date_range("2002-01-01", periods=966, freq="7D")
    frame = pd.DataFrame({"date": dates, "ILI": np.arange(966) / 7, "OT": np.arange(966) ** 2})
    frame.to_csv(tmp_path / "national_illness.csv", index=False)
    args = arguments(tmp_path / "national_illness.csv", data="custom", freq="w", features=features)
    scaled = (frame["OT"] - frame["OT"][:676].mean()) / frame["OT"][:676].std(ddof=0)
    data_set, loader = data_provider(args, "test")
    batch = next(iter(loader))
    assert batch[0].shape == (len(data_set), SEQ, 1 if features == "S" else 2)
    assert batch[2].shape[2] == 2
    np.testing.assert_allclose(batch[0][0, :, -1], scaled[966 - 193 - SEQ : 966 - 193], rtol=1e-6)


@pytest.mark.parametrize("flag", ["train", "val", "test"])
def test_an_epoch_has_the_order_of_a_data_loader(path: Path, flag: str) -> None:
    """Batch by batch, and torch's generator is left as a `DataLoader` leaves it, so that what follows is equal too."""
    args = arguments(path, batch_size=1000)
    data_set, loader = data_provider(args, flag)
    theirs = DataLoader(Items(data_set, LABEL), args.batch_size, shuffle=flag != "test")
    assert len(loader) == len(theirs)
    epochs = []
    for batches in (loader, theirs):
        torch.manual_seed(5)
        epochs.append([*batches, *batches])
        epochs[-1].append([torch.get_rng_state()])
    for ours, other in zip(*epochs, strict=True):
        assert all(tensor.equal(item.to(tensor.dtype)) for tensor, item in zip(ours, other, strict=True))


def test_an_unknown_frequency_is_refused(path: Path) -> None:
    with pytest.raises(ValueError, match="freq must be one of h, t, min"):
        data_provider(arguments(path, freq="3x"), "train")
