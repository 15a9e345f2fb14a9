"""All parsing of text that pyarrow prints, for questions that pyarrow has no function for.

Each function names the text that it reads, and the first release known to print it so. The tests run the installed
pyarrow on examples with a known answer: they fail on the release that changes the text.
"""

import pickle
import re
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    import pyarrow.compute as pc

_NO_FIELD = re.compile(r"No match for FieldRef\.Name\((.*?)\) in", re.DOTALL)


def may_mention(printed: str, name: str) -> bool:
    """Whether a printed expression may use a column of that name. A use is never missed; a false one is possible.

    Reads `str(expression)`, from pyarrow 17 on: columns are printed as their bare names, and so are strings.
    """
    return name in printed and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", printed) is not None


def has_positions(expression: "pc.Expression") -> bool:
    """Whether an expression has a column by its number instead of its name.

    Reads what `pickle.dumps(expression)` refuses, and `FieldPath(` in `str(expression)`, from pyarrow 17 on.
    """
    try:
        pickle.dumps(expression)
    except pa.ArrowNotImplementedError:  # only names are pickled
        return "FieldPath(" in str(expression)
    return False


def missing_column(error: BaseException) -> str | None:
    """The column that an expression uses and its input lacks, if the error says so.

    Reads `str(error)`, from pyarrow 17 on: `No match for FieldRef.Name(column) in ...`.
    """
    match = _NO_FIELD.search(str(error))
    return match[1] if match else None
