"""Everything that is read out of pyarrow's own texts, because pyarrow has no function that answers it.

Each function names the text that it reads, and the first release that is known to write it so. The tests ask the
installed pyarrow for examples with a known answer: they fail with the release that changes a text.
"""

import pickle
import re

import pyarrow as pa
import pyarrow.compute as pc

_NO_FIELD = re.compile(r"No match for FieldRef\.Name\((.*?)\) in", re.DOTALL)


def may_mention(printed: str, name: str) -> bool:
    """Whether a printed expression may have a column of that name: never too few columns, but sometimes too many.

    Reads `str(expression)`, from pyarrow 17 on: columns stand in it by their bare names, and so do texts.
    """
    return name in printed and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", printed) is not None


def has_positions(expression: pc.Expression) -> bool:
    """Whether an expression has a column by its number instead of its name.

    Reads what `pickle.dumps(expression)` refuses, and `FieldPath(` in `str(expression)`, from pyarrow 17 on.
    """
    try:
        pickle.dumps(expression)
    except pa.ArrowNotImplementedError:  # only names are pickled
        return "FieldPath(" in str(expression)
    return False


def missing_column(error: BaseException) -> str | None:
    """The column that an expression has and its input has not, if the error is about that.

    Reads `str(error)`, from pyarrow 17 on: `No match for FieldRef.Name(column) in ...`.
    """
    found = _NO_FIELD.search(str(error))
    return found[1] if found else None
