"""TSLib's data provider against its rules, written down once more with pandas and scikit-learn: each window, each bit.

The rules are those of `Dataset_ETT_hour` in https://github.com/thuml/Time-Series-Library.
"""

import runpy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.preprocessing import StandardScaler

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "coming_from_tslib.py"))
FEATURES, as_tuple, data_provider = (EXAMPLE[name] for name in ("FEATURES", "as_tuple", "data_provider"))

MONTH = 30 * 24
SEQ, LABEL, PRED = 96, 48, 24


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file like ETTh1.csv: hourly, 7 variables, some hours more than 20 months."""
    random = np.random.default_rng(0)
    rows = 20 * MONTH + 50
    frame = pd.DataFrame(random.standard_normal((rows, 7)).cumsum(0), columns=["HUFL", "HULL", "MUFL", *"abcd"])
    frame.insert(0, "date", pd.date_range("2016-07-01", periods=rows, freq="h"))
    target = tmp_path_factory.mktemp("ett") / "ETTh1.csv"
    frame.to_csv(target, index=False)
    return target


def marks(dates: pd.DatetimeIndex, timeenc: int) -> "np.ndarray[tuple[int, int], np.dtype[np.float64]]":
    if timeenc == 0:
        fields = [dates.month, dates.day, dates.day_of_week, dates.hour]
    else:
        fields = [dates.hour / 23, dates.day_of_week / 6, (dates.day - 1) / 30, (dates.day_of_year - 1) / 365]
        fields = [field - 0.5 for field in fields]
    return np.stack([np.asarray(field, np.float64) for field in fields], 1)


@pytest.mark.parametrize("timeenc", FEATURES)
@pytest.mark.parametrize(("flag", "part"), [("train", 0), ("val", 1), ("test", 2)])
def test_every_window_is_that_of_the_rules(path: Path, flag: str, part: int, timeenc: int) -> None:
    frame = pd.read_csv(path, parse_dates=["date"])
    values = frame[frame.columns[1:]].to_numpy()
    ends = [12 * MONTH, 16 * MONTH, 20 * MONTH]
    scaled = StandardScaler().fit(values[: ends[0]]).transform(values)
    stamps = marks(pd.DatetimeIndex(frame["date"]), timeenc)
    begin = 0 if part == 0 else ends[part - 1] - SEQ
    rows = slice(begin, ends[part])
    data, mark = torch.from_numpy(scaled[rows]).float(), torch.from_numpy(stamps[rows]).float()

    windows, loader = data_provider(
        path, flag, seq_len=SEQ, label_len=LABEL, pred_len=PRED, timeenc=timeenc, batch_size=512
    )
    ours = as_tuple(loader.transform[0](windows[:]))
    assert len(windows) == len(data) - SEQ - PRED + 1
    for k in range(len(windows)):
        past, future = slice(k, k + SEQ), slice(k + SEQ - LABEL, k + SEQ + PRED)
        for one, other in zip(ours, (data[past], data[future], mark[past], mark[future]), strict=True):
            assert torch.equal(one[k], other), k


def test_the_loader_yields_tuples_and_shuffles_but_for_the_test(path: Path) -> None:
    for flag in ("train", "val", "test"):
        windows, loader = data_provider(path, flag, pred_len=PRED, batch_size=1000)
        batch = next(iter(loader))
        assert [tuple(tensor.shape) for tensor in batch] == [
            (1000, 96, 7),
            (1000, 72, 7),
            (1000, 96, 4),
            (1000, 72, 4),
        ]
        in_order = torch.equal(batch[0], as_tuple(loader.transform[0](windows[:1000]))[0])
        assert in_order == (flag == "test")
