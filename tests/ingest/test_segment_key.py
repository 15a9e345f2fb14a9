"""The inside of `ingest/segment_key.py`: the labels of `share=True`."""

from pathlib import Path

import pytest

from tensorstash.ingest.segment_key import label_of


def test_a_label_of_a_glob(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The directory in which the search begins; a file that has a wildcard in its name is no glob."""
    (tmp_path / "weather" / "year=1").mkdir(parents=True)
    (tmp_path / "weather" / "year=1" / "rain[1].parquet").write_bytes(b"")
    monkeypatch.chdir(tmp_path / "weather")
    labels = {
        "/data/weather/*.parquet": "weather",
        "/data/weather/**/*.parquet": "weather",
        "/data/weather/year=*/[0-9]*.parquet": "weather",
        "/data/weather/rain_*.parquet": "weather",
        "/data/*/rain.parquet": "data",
        "s3://bucket/rain.parquet": "rain",
        "s3://bucket/weather/*.parquet": "weather",
        "*.parquet": "weather",
        "year=1/rain[1].parquet": "rain-1-",
        "/*.parquet": "stash",
    }
    assert {source: label_of(source) for source in labels} == labels
