"""A vocabulary that was given: codes that do not depend on what a source holds."""

from collections.abc import Sequence

import numpy as np

from tensorstash.arrays import Int32s
from tensorstash.decode import Piece, Stats, count_codes


class FixedVocabulary:
    """Value k has code k, and what is not among the values the code after the last."""

    def __init__(self, values: Sequence[str] | Sequence[int], fill: object) -> None:
        """`fill` is the value that null gets, or `None`."""
        self.names = [*values]
        self._codes: dict[object, int] = {value: code for code, value in enumerate(values)}
        self._null = self._codes.get(fill, -1)

    def encode(self, piece: Piece, _: int) -> tuple[Int32s, Stats]:
        """Codes, `(n,)`; -1 for null if there is no fill."""
        other = len(self.names)
        each = [-1 if name is None else self._codes.get(name, other) for name in piece.names]
        codes = np.array([*each, -1], np.int32)[piece.indices]
        nulls = int(np.count_nonzero(codes < 0))
        if nulls and self._null >= 0:
            codes[codes < 0] = self._null
        stats = count_codes(codes)
        stats.nulls, stats.unknown = nulls, int(np.count_nonzero(codes == other))
        return codes, stats
