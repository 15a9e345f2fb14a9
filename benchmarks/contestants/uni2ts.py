"""uni2ts: its transforms for pre-training, without masks to predict, and its `PackCollate`, with patches of 16.

Its indexer reads Arrow through `datasets`; here series lie in memory, which is faster.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from bench_pretrain import BATCH, HIGH, LOW, ROW, STEP, Sets, weights_of
from uni2ts.data.dataset import SampleTimeSeriesType, TimeSeriesDataset
from uni2ts.data.indexer import Indexer
from uni2ts.data.loader import DataLoader, PackCollate
from uni2ts.transform import (
    AddObservedMask,
    AddTimeIndex,
    AddVariateIndex,
    DummyValueImputation,
    FixedPatchSizeConstraints,
    FlatPackCollection,
    FlatPackFields,
    GetPatchSize,
    ImputeTimeSeries,
    PackFields,
    PatchCrop,
    Patchify,
    SampleDimension,
    SelectFields,
    SequencifyField,
)

FIELDS = ("target", "observed_mask", "time_id", "variate_id", "patch_size")


class Series(Indexer):  # type: ignore[misc]  # an untyped base
    """The series of a data set in memory."""

    def __init__(self, series: list[Any]) -> None:
        super().__init__(uniform=True)
        self.series = series

    def __len__(self) -> int:
        return len(self.series)

    def _getitem_int(self, idx: int) -> dict[str, Any]:
        return {"target": self.series[idx], "freq": "h"}

    def _getitem_iterable(self, idx: Iterable[int]) -> dict[str, Any]:
        return {"target": [self.series[k] for k in idx], "freq": ["h" for _ in idx]}


def chain() -> Any:
    """The transforms of `MoiraiPretrain.train_transform_map` up to the masks."""
    fewest = LOW // STEP
    return (
        SampleDimension(max_dim=128, fields=("target",))
        + GetPatchSize(fewest, patch_sizes=(STEP,), patch_size_constraints=FixedPatchSizeConstraints(STEP))
        + PatchCrop(fewest, HIGH // STEP, will_flatten=True)
        + PackFields(output_field="target", fields=("target",))
        + AddObservedMask(fields=("target",), collection_type=dict)
        + ImputeTimeSeries(fields=("target",), imputation_method=DummyValueImputation(value=0.0))
        + Patchify(max_patch_size=STEP, fields=("target", "observed_mask"))
        + AddVariateIndex(fields=("target",), max_dim=128, expected_ndim=3, randomize=True, collection_type=dict)
        + AddTimeIndex(fields=("target",), expected_ndim=3, collection_type=dict)
        + FlatPackCollection(field="variate_id")
        + FlatPackCollection(field="time_id")
        + FlatPackCollection(field="observed_mask", feat=True)
        + FlatPackFields(output_field="target", fields=("target",), feat=True)
        + SequencifyField(field="patch_size", target_field="target")
        + SelectFields(fields=[*FIELDS])
    )


def batches(sets: Sets) -> Iterator[dict[str, Any]]:
    """Packed batches of `BATCH` samples, from data sets by their weights."""
    proportional = SampleTimeSeriesType.PROPORTIONAL
    parts = [TimeSeriesDataset(Series(series), chain(), sample_time_series=proportional) for series in sets]
    collate = PackCollate(ROW // STEP, seq_fields=FIELDS, pad_func_map=DataLoader.pad_func_map)
    shares = np.array(weights_of(sets))
    shares /= shares.sum()
    while True:
        yield collate([parts[np.random.choice(len(parts), p=shares)][0] for _ in range(BATCH)])
