"""The inside of `sources/pyarrow_texts.py` on known examples: another text of a new pyarrow fails here first."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow import acero

from tensorstash.sources.pyarrow_texts import has_positions, may_mention, missing_column

a, b = pc.field("a"), pc.field("b c")


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        (a > 1, {"a"}),
        ((a > 1) & ~b.is_null(), {"a", "b c"}),
        (pc.if_else(a > 1, b, 2.0) == 1, {"a", "b c"}),
        (a.isin(["b c"]), {"a", "b c"}),  # a text: too many, never too few
        (pc.field("ä.ö") == "x", {"ä.ö", "x"}),
        (pc.field("aa") > 1, set()),
    ],
    ids=range(6),
)
def test_may_mention(expression: pc.Expression, names: set[str]) -> None:
    assert {name for name in ("a", "b c", "ä.ö", "x", "zz") if may_mention(str(expression), name)} == names


def test_has_positions() -> None:
    assert has_positions(pc.field(0) > 1)
    assert has_positions((a > 1) & pc.field(2).is_null())
    assert not has_positions(a > 1)
    assert not has_positions(pc.field("FieldPath(0)") == "FieldPath(0)")


@pytest.mark.parametrize("name", ["tmp", "two words", "a(b)", "two\nlines"])
def test_missing_column(name: str) -> None:
    steps = [
        acero.Declaration("table_source", acero.TableSourceNodeOptions(pa.table({"a": [1]}))),
        acero.Declaration("project", acero.ProjectNodeOptions([pc.field(name) > 1], ["kept"])),
    ]
    with pytest.raises(pa.ArrowException, match="No match for FieldRef") as caught:
        acero.Declaration.from_sequence(steps).to_table()
    assert missing_column(caught.value) == name
    assert missing_column(pa.ArrowInvalid("divide by zero")) is None
