"""The component of each position in the endless sequence of a mix: computed on demand, never stored.

The components are the leaves of a Huffman tree (Huffman, "A Method for the Construction of Minimum-Redundancy Codes",
1952) over integer weights, so that likely components are found in few steps. At a node of weight w whose left child has
the weight l, the left child gets `L(n) = (2 * n * l + w) // (2 * w)` of the first n positions, the right child gets the
others. So in every prefix of the sequence the count of each component is within two positions of its share, and exact
after every multiple of the total weight.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import floor

import numpy as np
from numpy.typing import NDArray

from tensorstash.common.dtypes import Int32s, Int64s
from tensorstash.native import kernel, library

_TOTAL = 1 << 32  # the sum of fractional weights as integers
_HEAVIEST = 1 << 60  # the largest sum of weights, so that a remainder of the tree fits into int64
_MOST = 1 << 16  # the most components: rounding small weights up to 1 then takes less than the largest weight


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """Node 0 is the root, and a parent comes before its children. A child is a node, or `~k` for component k."""

    components: int
    nodes: kernel.Nodes  # the remainders in it are those at position 0


def whole_weights(weights: Sequence[float]) -> list[int]:
    """Weights as integers. Integers stay; other weights are scaled to the sum 2**32, positive ones to at least 1.

    Scaled weights are rounded down, and the remainder goes to the weights with the largest fractions; of equal
    fractions, to the first. If rounding many small weights up to 1 exceeds the sum, the largest weight is reduced.
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
        whole[shares.index(max(shares))] += left
    return whole


def tree(weights: Sequence[int]) -> Tree:
    """The tree of components with these weights, at least one of them above 0. Components of weight 0 are left out.

    The two lightest nodes become the children of a new node, the lighter one on the left. Of nodes of equal weight,
    components come first, in their order, and then new nodes in the order in which they were made. A component that is
    alone is both children of its node.
    """
    if len(weights) > _MOST or sum(weights) > _HEAVIEST:
        raise ValueError(
            f"A mix must have at most {_MOST:,} components, and integer weights that sum to at most 2**60, got "
            f"{len(weights):,} components and a sum of {sum(weights):,}. Give weights as fractions."
        )
    heap = [(weight, k, ~k) for k, weight in enumerate(weights) if weight]
    if len(heap) == 1:
        heap.append((0, len(weights), heap[0][2]))
    heapq.heapify(heap)
    count = len(heap) - 1
    two_left, two_weight, rest = np.zeros((3, count), np.int64)
    child = np.zeros((count, 2), np.int32)
    for node in range(count - 1, -1, -1):
        (left_weight, _, left), (right_weight, _, right) = heapq.heappop(heap), heapq.heappop(heap)
        weight = left_weight + right_weight
        two_left[node], two_weight[node], child[node] = 2 * left_weight, 2 * weight, (left, right)
        heapq.heappush(heap, (weight, len(weights) + count - node, node))
    nodes = kernel.Nodes(child.ravel(), two_left, two_weight, rest, two_left / two_weight, np.full(count, -0.5))
    return Tree(len(weights), nodes)


def counts(of: Tree, n: int) -> list[int]:
    """The number of the first n positions that belong to each component, for any n."""
    return _before(of, n)[1]


def _before(of: Tree, n: int) -> tuple[list[int], list[int]]:
    """After n positions: the remainder of `L(n)` at each node, and the number of positions of each component."""
    # Python's integers, because products exceed int64
    two_left, two_weight = of.nodes.two_left.tolist(), of.nodes.two_weight.tolist()
    reached, rest, done = [n] * len(two_left), [0] * len(two_left), [0] * of.components
    for node, children in enumerate(of.nodes.child.reshape(-1, 2).tolist()):
        left, rest[node] = divmod(reached[node] * two_left[node] + two_weight[node] // 2, two_weight[node])
        for child, taken in zip(children, (left, reached[node] - left)):
            if child >= 0:
                reached[child] = taken
            else:
                done[~child] = taken
    return rest, done


def choose(of: Tree, positions: Int64s) -> tuple[Int32s, Int64s, Int64s]:
    """The component of each position, `(k,)` int64 in any order, and how many earlier positions belong to it.

    These are counted from the lowest given position on; the third array, `(components,)`, counts those before it.
    Positions of one call must be less than 2**48 apart: a quotient in float64 is then at most one off.
    """
    base = int(positions.min()) if len(positions) else 0
    rest, done = _before(of, base)
    before, index = np.array(done, np.int64), positions - base
    start = np.array(rest, np.int64)
    nodes = replace(of.nodes, rest=start, offset=start / of.nodes.two_weight - 0.5)
    component, index = _down(nodes, index) if library.LIBRARY is None else kernel.descend(nodes, index)
    return component, index, before


def _down(nodes: kernel.Nodes, numbers: Int64s) -> tuple[Int32s, Int64s]:
    """As `kernel.descend`: all numbers go down the tree level by level."""
    component, index = np.empty(len(numbers), np.int32), np.empty(len(numbers), np.int64)
    todo, within = np.arange(len(numbers)), numbers
    node: Int32s = np.zeros(len(numbers), np.int32)
    while len(todo):
        within, goes_right = _halves(nodes, node, within)
        node = nodes.child[2 * node + goes_right]
        leaf = node < 0
        if leaf.any():
            done, rest = np.flatnonzero(leaf), np.flatnonzero(~leaf)
            component[todo[done]], index[todo[done]] = ~node[done], within[done]
            todo, node, within = todo[rest], node[rest], within[rest]
    return component, index


def _halves(nodes: kernel.Nodes, node: Int32s, n: Int64s) -> tuple[Int64s, NDArray[np.bool_]]:
    """The positions within the child, and whether it is the right child.

    `left = (rest + n * two_left) // two_weight` is estimated in float64, half too low, so that it is right or one too
    low. The remainder tells which: products wrap around in int64, but their difference is less than 2 * two_weight.
    """
    two_left, two_weight = nodes.two_left[node], nodes.two_weight[node]
    left = (n * nodes.ratio[node] + nodes.offset[node]).astype(np.int64)
    remainder = n * two_left
    remainder += nodes.rest[node]
    remainder -= left * two_weight
    low = remainder >= two_weight
    left += low
    remainder -= two_weight * low
    right = remainder < two_weight - two_left
    return np.where(right, n - left, left), right
