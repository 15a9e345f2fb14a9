"""Which members of a pack a scaler scales: all, or those that are named."""

from collections.abc import Mapping, Sequence

from tensorstash.common.checks import names_in
from tensorstash.errors import unknown
from tensorstash.stash.stash import Stash


def chosen_in(columns: Sequence[str] | Mapping[str, Sequence[str] | None]) -> tuple[list[str], dict[str, list[str]]]:
    """The names of columns, and the members to scale of those packs of which not all are."""
    if not isinstance(columns, Mapping):
        return names_in(columns, "columns"), {}
    some = {name: names_in(members, f"columns[{name!r}]") for name, members in columns.items() if members is not None}
    return names_in([*columns], "columns"), some


def others_in(stashes: Sequence[Stash], name: str, members: Sequence[str] | None) -> list[int]:
    """The places in a pack of what is not to be scaled; `None` scales all members."""
    if members is None:
        return []
    first, *more = [stash.about(name) for stash in stashes]
    if len(first.members) < 2 or first.calendar or any(about.members != first.members for about in more):
        raise ValueError(
            f"Members are those of a pack of named columns, the same in all stashes; {name!r} is none. Write "
            f"{{{name!r}: None}} for the whole column."
        )
    if not members:
        raise ValueError(f"A pack must have a member to scale, got none for {name!r}. Leave it out.")
    for member in members:
        if member not in first.members:
            raise unknown(member, first.members, f"the pack {name!r}", "member")
    return [place for place, member in enumerate(first.members) if member not in members]
