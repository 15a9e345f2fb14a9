"""Passes: what a loop sees that leaves early, asks for epochs, takes so many steps at a time, and is resumed."""

import itertools
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import tensorstash as ts
from tests import orders
from tests.oracle_load import like
from tests.words import Tail

Step = tuple[int, int, list[int]]  # the epoch, the windows of it that are used after the step, and those of the step


def row_of(n: int, size: int, tail: str, epoch: int = 0, consumed: int = 0) -> Iterator[Step]:
    """The endless row of epochs, cut into steps, from a position on."""
    for number in itertools.count(epoch):
        ids = orders.shuffled(n, 0, number)
        begin = consumed if number == epoch else 0
        for at in range(begin, n, size):
            step = ids[at : at + size]
            if len(step) == size or tail != "drop":
                yield number, at + len(step), step


@dataclass
class Model:
    """What the next pass is, by the rules, with lists."""

    n: int
    tail: str
    steps: int | None
    epoch: int = 0
    consumed: int = 0
    number: int = 0
    taken: int = 0
    left: bool = False  # whether a pass stands here that has begun: then it is over
    asked: int | None = None

    def passing(self, size: int) -> list[Step]:
        """The steps of the next pass, with its beginning noted."""
        asked, self.asked = self.asked, None
        rest = self._here(size)
        if asked is None or (self.steps is not None and asked == self.number + (self.left or not rest)):
            if self.left or not rest:
                self._advance()
        elif self.left or asked != self.number:
            self.number, self.taken = asked, 0
            self.epoch, self.consumed = (asked, 0) if self.steps is None else self._after(asked * self.steps, size)
        self.left = False
        return self._here(size)

    def _here(self, size: int) -> list[Step]:
        """What is left of the pass that stands here."""
        row = row_of(self.n, size, self.tail, self.epoch, self.consumed)
        if self.steps is not None:
            return list(itertools.islice(row, max(0, self.steps - self.taken)))
        return list(itertools.takewhile(lambda step: step[0] == self.epoch, row))

    def _after(self, steps: int, size: int) -> tuple[int, int]:
        """The position in the row after so many steps from its beginning."""
        last = (0, 0)
        for epoch, consumed, _ in itertools.islice(row_of(self.n, size, self.tail), steps):
            last = (epoch, consumed)
        return last

    def _advance(self) -> None:
        self.number, self.taken = self.number + 1, 0
        if self.steps is None:
            self.epoch, self.consumed, self.number = self.epoch + 1, 0, self.epoch + 1

    def hand_out(self, step: Step) -> None:
        self.epoch, self.consumed, _ = step
        self.taken += 1
        self.left = True

    def finish(self) -> None:
        self._advance()
        self.left = False


def samplers(n: int, ranks: int, batch_size: int, tail: Tail, steps: int | None) -> list[ts.Sampler]:
    return [
        ts.Sampler(n, batch_size, shuffle=True, tail=tail, steps=steps, num_replicas=ranks, rank=rank)
        for rank in range(ranks)
    ]


def state_of(ranks: list[ts.Sampler]) -> dict[str, Any]:
    states = [one.state_dict() for one in ranks]
    assert states == [states[0]] * len(states)
    return json.loads(json.dumps(states[0]))


LAYOUTS = st.tuples(st.integers(1, 3), st.integers(1, 4))
# a pass that is left after so many steps, and what set_epoch asks for after its first step; or set_epoch between
# passes; or another process that takes up the state with another layout
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("run"), st.integers(1, 9), st.none() | st.integers(0, 4)),
        st.tuples(st.just("set_epoch"), st.integers(0, 4)),
        st.tuples(st.just("resume"), LAYOUTS),
    ),
    min_size=2,
    max_size=9,
)


@settings(max_examples=200)
@given(st.integers(1, 14), LAYOUTS, st.sampled_from(["keep", "pad", "drop"]), st.none() | st.integers(1, 7), ACTIONS)
def test_every_pass_is_the_one_of_the_rules(
    n: int, layout: tuple[int, int], tail: Tail, steps: int | None, actions: list[Any]
) -> None:
    """Left early, asked for, or resumed on other ranks and batch sizes: windows and states are those of the model."""
    if tail == "drop":
        layouts = [layout, *(what[1] for what in actions if what[0] == "resume")]
        assume(all(ranks * batch <= n for ranks, batch in layouts))
    model, ranks = Model(n, tail, steps), samplers(n, *layout, tail, steps)
    for what, *arguments in actions:
        if what == "set_epoch":
            model.asked = arguments[0]
            for one in ranks:
                one.set_epoch(arguments[0])
        elif what == "resume":
            state = state_of(ranks)
            layout = arguments[0]
            ranks = samplers(n, *layout, tail, steps)
            for one in ranks:
                one.load_state_dict(state)
            # what a state says is where its pass stands, which then goes on
            model.left, model.asked = False, None
            model.epoch, model.consumed = state["epoch"], state["consumed"]
            model.number, model.taken = state.get("pass", state["epoch"]), state.get("steps", 0)
        else:
            run(model, ranks, layout, *arguments)


def run(model: Model, ranks: list[ts.Sampler], layout: tuple[int, int], most: int, asked: int | None) -> None:
    """One pass of all ranks beside the model's, left after `most` steps, or whole if it has fewer."""
    passing = [iter(one) for one in ranks]
    expected = model.passing(layout[0] * layout[1])
    for done, step in enumerate(expected):
        if done == most:
            return
        parts = [next(ids) for ids in passing]
        model.hand_out(step)
        assert list(dict.fromkeys(k for part in parts for k in part)) == step[2]
        assert sum(map(len, parts)) >= len(step[2])
        if done == 0 and asked is not None:
            model.asked = asked
            for one in ranks:
                one.set_epoch(asked)
        state = state_of(ranks)
        assert (state["epoch"], state["consumed"]) == step[:2]
        assert model.steps is None or (state["pass"], state["steps"]) == (model.number, model.taken)
    if len(expected) < most:
        assert [list(ids) for ids in passing] == [[]] * len(ranks)
        model.finish()


def ids_of(sampler: ts.Sampler, most: int | None = None) -> list[list[int]]:
    return [*itertools.islice(sampler, most)]


def test_passes_of_so_many_steps_are_the_epochs_one_after_the_other() -> None:
    for n, size, steps in ((10, 3, 3), (10, 3, 9), (1, 1, 4), (7, 2, 1)):
        one, whole = ts.Sampler(n, size, shuffle=True, steps=steps), ts.Sampler(n, size, shuffle=True)
        assert len(one) == steps
        made = [ids for _ in range(12) for ids in ids_of(one)]
        assert made == list(itertools.islice((ids for _ in itertools.count() for ids in ids_of(whole)), 12 * steps))


def test_lightning_and_fabric_count_passes_and_nothing_jumps() -> None:
    """They call set_epoch with the number of passes before each, whatever epochs these lie in."""
    plain, counted = (ts.Sampler(10, 3, shuffle=True, steps=3) for _ in range(2))
    for number in range(6):
        counted.set_epoch(number)
        assert ids_of(counted) == ids_of(plain)


def test_a_pass_of_steps_that_is_left_goes_on_in_the_next() -> None:
    one = ts.Sampler(10, 1, steps=4)
    assert ids_of(one, 2) == [[0], [1]]
    assert (one.state_dict()["pass"], one.state_dict()["steps"]) == (0, 2)
    assert ids_of(one) == [[2], [3], [4], [5]]
    one.set_epoch(5)  # not the next one: after 5 x 4 steps
    assert ids_of(one) == [[0], [1], [2], [3]]


def test_a_resumed_pass_has_the_rest_of_its_steps_whatever_the_batch_size() -> None:
    one = ts.Sampler(100, 4, steps=5)
    ids_of(one, 2)
    other = ts.Sampler(100, 10, steps=5)
    other.load_state_dict(one.state_dict())
    assert [ids[0] for ids in ids_of(other)] == [8, 18, 28]
    assert [ids[0] for ids in ids_of(other)] == [38, 48, 58, 68, 78]


def test_a_state_without_passes_is_refused_where_there_are_some() -> None:
    with pytest.raises(ValueError, match=r"; this one lacks pass, steps\.$"):
        ts.Sampler(10, 3, steps=2).load_state_dict(ts.Sampler(10, 3).state_dict())


def test_endless_passes_need_a_window() -> None:
    with pytest.raises(ValueError, match=like("steps ... there are 0")):
        next(iter(ts.Sampler(0, 3, steps=2)))
    assert list(ts.Sampler(0, 3)) == []


def test_the_size_of_a_step_over_all_ranks_stays_what_it_is() -> None:
    """As an elastic run wants it: the same steps on 1, 2 or 3 ranks."""
    whole = ids_of(ts.Sampler(24, 6, shuffle=True))
    for ranks in (1, 2, 3):
        made = [
            ts.Sampler(24, global_batch_size=6, shuffle=True, num_replicas=ranks, rank=rank) for rank in range(ranks)
        ]
        assert [one.batch_size for one in made] == [6 // ranks] * ranks
        assert [[*itertools.chain(*parts)] for parts in zip(*map(ids_of, made), strict=True)] == whole


def test_a_step_that_the_ranks_cannot_share_is_refused_when_they_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    one = ts.Sampler(20, global_batch_size=6)
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "1")
    message = "global_batch_size ... got 6 for 4 ranks"
    with pytest.raises(ValueError, match=like(message)):
        next(iter(one))


def test_a_state_is_that_of_a_step_wherever_a_signal_comes() -> None:
    """A handler may run between any two operations of a loop: states there have a step of 3 windows, or none of it."""
    loader = ts.Loader(ts.Windows(ts.load({"y": range(20)}), history=1), 3, shuffle=True)
    loop, received, consumed = iter(loader), 0, set[tuple[int, int]]()

    def handler(frame: Any, event: str, _: Any) -> Any:
        if frame.f_code.co_name != "__iter__":
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            consumed.add((received, loader.state_dict()["consumed"]))
        return handler

    before = sys.gettrace()
    sys.settrace(handler)
    try:
        for _ in range(6):
            next(loop)
            received += 1
    finally:
        sys.settrace(before)
    assert consumed == {(k, 3 * k + more) for k in range(6) for more in (0, 3)}
