"""Which component of a mix each position of an endless row belongs to: computed where it is asked for, never stored.

The components are the leaves of a Huffman tree (Huffman, "A Method for the Construction of Minimum-Redundancy Codes",
1952) over integer weights, so that likely components are found in few steps. At a node of weight w whose left child has
the weight l, the left child gets `L(n) = (2 * n * l + w) // (2 * w)` of the first n positions, the right child the
others. So every prefix of the row is within two positions of the shares of all components, and exact after each sum of
the weights.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor

import numpy as np
from numpy.typing import NDArray

from tensorstash.arrays import Int32s, Int64s

_TOTAL = 1 << 32  # what weights that are no integers are rounded to
_HEAVIEST = 1 << 60  # sum of integer weights: a remainder of the tree fits into int64
_WIDEST = 1 << 48  # positions from the first to the last of one call: a quotient in float64 is at most one off
_MOST = 1 << 16  # components: rounding them up to 1 takes less than the largest has


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """Node 0 is the root, and a parent comes before its children. A child is a node, or `~k` for component k."""

    weight: list[int]  # of each node
    left_weight: list[int]  # of its left child
    child: Int32s  # (2 * nodes,) the left and the right child of each node
    components: int

    @property
    def root(self) -> int:
        """Node 0, or the only component that has a weight."""
        return int(self.child[0]) if not self.weight else 0


def whole_weights(weights: Sequence[float]) -> list[int]:
    """Weights as integers: integers as they are, others rounded so that they sum to 2**32, at least to 1 if positive.

    They are rounded down, and what is left goes to those with the largest fractions, of equal ones to the first.

    Example:
        >>> whole_weights([3, 1])
        [3, 1]
        >>> whole_weights([0.75, 0.25, 1e-30])
        [3221225471, 1073741824, 1]
    """
    if all(isinstance(weight, int) for weight in weights):
        return list(weights)  # type: ignore[arg-type]  # all() does not narrow
    exact = [Fraction(weight) for weight in weights]
    total = sum(exact)
    shares = [weight * _TOTAL / total for weight in exact]
    whole = [max(floor(share), int(share > 0)) for share in shares]
    left = _TOTAL - sum(whole)
    by_fraction = sorted(range(len(whole)), key=lambda k: whole[k] - shares[k])
    for k in by_fraction[: max(left, 0)]:
        whole[k] += 1
    if left < 0:
        whole[max(range(len(whole)), key=lambda k: whole[k])] += left
    return whole


def tree(weights: Sequence[int]) -> Tree:
    """The tree of components with these weights, of which one at least is above 0; those with 0 are not in it.

    The two lightest nodes become the children of a new node, the lighter one on the left. Of nodes of equal weight,
    components come first, in their order, and then new nodes in the order in which they were made.
    """
    if len(weights) > _MOST or sum(weights) > _HEAVIEST:
        raise ValueError(
            f"A mix has at most {_MOST:,} components, and integer weights that sum to at most 2**60; got "
            f"{len(weights):,} components and a sum of {sum(weights):,}. Give weights as fractions."
        )
    heap = [(weight, k, ~k) for k, weight in enumerate(weights) if weight]
    heapq.heapify(heap)
    inner = len(heap) - 1
    weight, left_weight = [0] * inner, [0] * inner
    child = np.full(2 * max(inner, 1), heap[0][2], np.int32)
    for node in range(inner - 1, -1, -1):
        left, right = heapq.heappop(heap), heapq.heappop(heap)
        weight[node], left_weight[node] = left[0] + right[0], left[0]
        child[2 * node : 2 * node + 2] = left[2], right[2]
        heapq.heappush(heap, (weight[node], len(weights) + inner - node, node))
    return Tree(weight, left_weight, child, len(weights))


def counts(of: Tree, n: int) -> list[int]:
    """How many of the first n positions belong to each component, whatever n.

    Example:
        >>> counts(tree([3, 1]), 10)
        [7, 3]
    """
    return _before(of, n)[1]


def _before(of: Tree, n: int) -> tuple[list[int], list[int]]:
    """How many of the first n positions go to each node, and to each component."""
    at, done = [n] * len(of.weight), [0] * of.components
    child = of.child.tolist()
    for node, (weight, left_weight) in enumerate(zip(of.weight, of.left_weight)):
        left = (2 * at[node] * left_weight + weight) // (2 * weight)
        for k, taken in zip(child[2 * node : 2 * node + 2], (left, at[node] - left)):
            if k >= 0:
                at[k] = taken
            else:
                done[~k] = taken
    if not of.weight:
        done[~of.root] = n
    return at, done


def choose(of: Tree, positions: Int64s) -> tuple[Int32s, Int64s]:
    """The component of each position, `(k,)` int64 in any order, and how many earlier positions belong to it too.

    The first and the last position of one call are less than 2**48 apart.

    Example:
        >>> component, index = choose(tree([3, 1]), np.arange(8))
        >>> component
        array([0, 1, 0, 0, 0, 1, 0, 0], dtype=int32)
        >>> index
        array([0, 0, 1, 2, 3, 1, 4, 5])
    """
    component, index, before = descend(of, positions)
    index += before[component]
    return component, index


def descend(of: Tree, positions: Int64s) -> tuple[Int32s, Int64s, Int64s]:
    """As `choose`, but indexes count from the first position on: `before[k]` of component k are at earlier ones."""
    base = int(positions.min(initial=np.iinfo(np.int64).max)) if len(positions) else 0
    at, done = _before(of, base)
    component, index = np.full(len(positions), ~of.root, np.int32), positions - base
    if of.weight and len(positions):
        if int(index.max()) >= _WIDEST:
            raise ValueError(f"Positions of one call are less than 2**48 apart; got {base} and {int(positions.max())}.")
        _down(of, at, component, index)
    return component, index, np.array(done, np.int64)


def _down(of: Tree, at: list[int], component: Int32s, index: Int64s) -> None:
    """All positions at once, from level to level; `index` holds positions relative to `at`, and then indexes."""
    nodes = _nodes(of, at)
    todo, rest = np.arange(len(index)), index.copy()
    node: Int32s = np.zeros(len(index), np.int32)
    while len(todo):
        rest, goes_right = _halves(nodes, node, rest)
        node = of.child[2 * node + goes_right]
        leaf = node < 0
        if leaf.any():
            done, on = np.flatnonzero(leaf), np.flatnonzero(~leaf)
            component[todo[done]], index[todo[done]] = ~node[done], rest[done]
            todo, node, rest = todo[on], node[on], rest[on]


@dataclass(frozen=True, slots=True, eq=False)
class _Nodes:
    """What is needed of each node, `(nodes,)`, to share positions out that are counted from `at` on."""

    ratio: NDArray[np.float64]  # left weight / weight
    offset: NDArray[np.float64]
    two_left: Int64s
    two_weight: Int64s
    start: Int64s  # the remainder of the division at the position `at`


def _nodes(of: Tree, at: list[int]) -> _Nodes:
    start = [(2 * n * left + w) % (2 * w) for n, left, w in zip(at, of.left_weight, of.weight)]
    ratio = [left / w for left, w in zip(of.left_weight, of.weight)]
    offset = [r / (2 * w) - 0.5 for r, w in zip(start, of.weight)]
    two_left, two_weight = 2 * np.array(of.left_weight, np.int64), 2 * np.array(of.weight, np.int64)
    return _Nodes(np.array(ratio), np.array(offset), two_left, two_weight, np.array(start, np.int64))


def _halves(nodes: _Nodes, node: Int32s, n: Int64s) -> tuple[Int64s, NDArray[np.bool_]]:
    """The positions within the child, and whether it is the right one.

    `left = (start + n * two_left) // two_weight` is estimated in float64, half too low, so that it is right or one too
    low. The remainder tells which: products wrap around in int64, but their difference is less than 2 * two_weight.
    """
    two_left, two_weight = nodes.two_left[node], nodes.two_weight[node]
    left = (n * nodes.ratio[node] + nodes.offset[node]).astype(np.int64)
    remainder = n * two_left
    remainder += nodes.start[node]
    remainder -= left * two_weight
    low = remainder >= two_weight
    left += low
    remainder -= two_weight * low
    right = remainder < two_weight - two_left
    return np.where(right, n - left, left), right
