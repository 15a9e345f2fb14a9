"""A span: which slots of which column a window holds, relative to its anchor."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """Rows `begin, begin + step, ...` before `end` of a column, relative to a window's anchor."""

    name: str
    column: str
    begin: int
    end: int
    step: int = 1

    def __len__(self) -> int:
        return len(range(self.begin, self.end, self.step))

    def __str__(self) -> str:
        return f"{self.name}={self.column}[{self.begin}:{self.end}{f':{self.step}' if self.step > 1 else ''}]"
