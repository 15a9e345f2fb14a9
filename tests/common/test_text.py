"""The inside of `common/text.py`: counts and types in the words of a sentence."""

from collections import UserDict
from fractions import Fraction

import numpy as np
import pytest

from tensorstash.common.text import counted, type_text


def test_one_thing_is_named_in_the_singular() -> None:
    assert [counted(number, "null") for number in (0, 1, 2, 12_345)] == ["0 nulls", "1 null", "2 nulls", "12,345 nulls"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "an int"),
        ([], "a list"),
        (Fraction(1, 2), "a Fraction"),
        (object(), "an object"),
        (np.zeros(1), "an ndarray"),
        (np.uint8(1), "a uint8"),
        (UserDict(), "a UserDict"),
    ],
)
def test_a_type_has_the_article_that_is_spoken(value: object, text: str) -> None:
    assert type_text(value) == text
