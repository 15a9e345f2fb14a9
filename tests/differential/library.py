"""The library of this process, in the words of the script."""

import os
from typing import Any

import tensorstash
from tests.differential.words import Side, Spoken, Words, member_of

SIDE: Side = "earlier" if os.environ.get("DIFFERENTIAL_SIDE") == "earlier" else "here"
WORDS = Words(SIDE)

ts = Spoken(tensorstash, WORDS)


def member(thing: Any, name: str) -> Any:
    """A method or attribute of an object of the library that may have another name on the other side."""
    return member_of(thing, name, WORDS)


def kind_of(thing: object) -> str:
    """The name of the class of an object, in the words of the script."""
    return WORDS.shown_name(type(thing).__name__)
