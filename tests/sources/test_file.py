"""Places of URLs. It reaches inside `sources/file.py`: without credentials there is nothing to see but a wait."""

from tensorstash.sources.file import _bounded, place_of


def test_the_retries_of_google_are_bounded() -> None:
    assert _bounded("gs://bucket/x") == "gs://bucket/x?retry_limit_seconds=10"
    assert _bounded("gcs://bucket/*.parquet?anonymous=true") == (
        "gcs://bucket/*.parquet?anonymous=true&retry_limit_seconds=10"
    )
    for url in ("gs://bucket/x?retry_limit_seconds=3", "s3://bucket/x"):
        assert _bounded(url) == url
    place = place_of("gs://anonymous@bucket/d/*.parquet", None)
    assert (place.path, place.scheme) == ("bucket/d/*.parquet", "gs://")
