"""The orders of an epoch by their definitions, in Python's integers: slow, obvious, and without arrays."""

import hashlib
import math
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

WORD = 1 << 64
SMALL = 1 << 16  # up to here a permutation is drawn as a whole


def keys(seed: int, epoch: int) -> list[int]:
    """The six numbers that an epoch is drawn with."""
    digest = hashlib.blake2b(f"tensorstash order 1, seed {seed}, epoch {epoch}".encode(), digest_size=48).digest()
    return [int.from_bytes(digest[k : k + 8], "little") for k in range(0, 48, 8)]


def mixed(x: int) -> int:
    """The finalizer of SplitMix64."""
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % WORD
    x = (x ^ x >> 27) * 0x94D049BB133111EB % WORD
    return x ^ x >> 31


@lru_cache(maxsize=64)
def small(n: int, one: int, two: int) -> tuple[int, ...]:
    """Few ids in the order of their hashes."""
    return tuple(sorted(range(n), key=lambda k: mixed(mixed(k ^ one) ^ two)))


def scaled(by: int, key: int, size: int) -> int:
    """A hash below `size`."""
    h = (by ^ key) * 0x9E3779B97F4A7C15 % WORD
    h = (h ^ h >> 32) * 0xD6E8FEB86659FD93 % WORD
    return (h >> 32) * size >> 32


def network(x: int, a: int, b: int, numbers: list[int]) -> int:
    """Where a cell of an `a` by `b` grid goes."""
    left, right = divmod(x, b)
    for k in (0, 2, 4):
        left = (left + scaled(right, numbers[k], a)) % a
        right = (right + scaled(left, numbers[k + 1], b)) % b
    return left * b + right


def permuted(n: int, position: int, numbers: list[int], most: int = SMALL) -> int:
    """The id at a position of the permutation of `0..n-1`; up to `most` ids it is drawn as a whole."""
    if n <= most:
        return small(n, *numbers[:2])[position]
    a = math.isqrt(n - 1) + 1
    a += a % 2
    x = network(position, a, -(-n // a), numbers)
    while x >= n:
        x = network(x, a, -(-n // a), numbers)
    return x


def shuffled(n: int, seed: int, epoch: int) -> list[int]:
    """The ids of an epoch with `shuffle=True`."""
    numbers = keys(seed, epoch)
    return [permuted(n, position, numbers) for position in range(n)]


def blocks(n: int, size: int, seed: int, epoch: int) -> list[int]:
    """The ids of an epoch with `order=ts.Blocks(size)`: whole blocks, then what is before and behind them."""
    first = min(keys(seed, epoch)[0] % size, n)
    whole = (n - first) // size
    ids = [first + block * size + k for block in shuffled(whole, seed, epoch) for k in range(size)]
    return [*ids, *range(first), *range(first + whole * size, n)]


def lanes(n: int, count: int) -> list[int]:
    """The ids of an epoch with `order=ts.Lanes(count)`: pieces of the sequential order, side by side."""
    lengths = [n // count + (lane < n % count) for lane in range(count)]
    firsts = [sum(lengths[:lane]) for lane in range(count)]
    return [first + k for k in range(max(lengths)) for first, length in zip(firsts, lengths) if k < length]


# Weights


def draw_hash(seed: int, epoch: int, position: int, pair: int) -> int:
    """The hash of a position of a weighted order; pair 0 draws the window or the entity, pair 1 the window of it."""
    digest = hashlib.blake2b(f"tensorstash weighted 1, seed {seed}, epoch {epoch}".encode(), digest_size=64).digest()
    one, two = (int.from_bytes(digest[8 * k : 8 * k + 8], "little") for k in (2 * pair, 2 * pair + 1))
    return mixed(mixed(position ^ one) ^ two)


def ends_of(weights: list[float]) -> list[int]:
    """Up to where each weight reaches among 2**52 equal parts."""
    sums = [weights[0]]
    for weight in weights[1:]:
        sums.append(sums[-1] + weight)
    return [round(total / sums[-1] * 2**52) for total in sums]


def drawn(weights: list[float], seed: int, epoch: int, position: int) -> int:
    """The place of the weight that a position draws."""
    number = draw_hash(seed, epoch, position, 0) >> 12
    return next(k for k, end in enumerate(ends_of(weights)) if number < end)


# A few windows of every entity

SWAPS = 16  # up to so many draws of an entity are swaps, more of them places in a permutation


def per_entity(windows: list[int], count: int, seed: int, epoch: int) -> list[int]:
    """The ids of an epoch with `order=ts.PerEntity(count)`; entities have so many windows, numbered by entity."""
    digest = hashlib.blake2b(f"tensorstash per entity 1, seed {seed}, epoch {epoch}".encode(), digest_size=64).digest()
    base = [int.from_bytes(digest[k : k + 8], "little") for k in range(0, 64, 8)]
    shown, first = [], 0
    for entity, n in enumerate(windows):
        own = [*range(n)]
        if n > count and count <= SWAPS:
            for k in range(count):
                other = k + mixed(mixed(k ^ mixed(mixed(entity ^ base[0]) ^ base[1])) ^ base[2]) % (n - k)
                own[k], own[other] = own[other], own[k]
        elif n > count:
            numbers = [mixed(mixed(entity ^ one) ^ two) for one, two in pairwise(base)]
            own = [permuted(n, k, numbers, 0) for k in range(count)]
        shown += [first + k for k in own[:count]]
        first += n
    return [shown[k] for k in shuffled(len(shown), seed, epoch)]


# Mixes


class Node:
    """A component, or two nodes."""

    def __init__(self, weight: int, component: int = -1, *children: "Node") -> None:
        self.weight, self.component, self.children = weight, component, children

    def at(self, n: int) -> tuple[int, int]:
        """The component of position n, and its index there."""
        if not self.children:
            return self.component, n
        left, right = self.children
        before, after = (round_half_up(Fraction(k * left.weight, self.weight)) for k in (n, n + 1))
        return left.at(before) if after > before else right.at(n - before)


def round_half_up(value: Fraction) -> int:
    return (2 * value.numerator + value.denominator) // (2 * value.denominator)


def tree(weights: list[int]) -> Node:
    """The tree that gives each position of a mix to a component."""
    nodes = [Node(weight, k) for k, weight in enumerate(weights) if weight]
    while len(nodes) > 1:
        left = min(nodes, key=lambda node: node.weight)  # the first of equal ones: new nodes stand at the end
        nodes.remove(left)
        right = min(nodes, key=lambda node: node.weight)
        nodes.remove(right)
        nodes.append(Node(left.weight + right.weight, -1, left, right))
    return nodes[0]


def component_keys(seed: int, name: str, epoch: int) -> list[int]:
    """The numbers that the windows of a component are permuted with, when it shows them for the `epoch`-th time."""
    digest = hashlib.blake2b(f"tensorstash mix 1, seed {seed}, component {name}".encode(), digest_size=64).digest()
    base = [int.from_bytes(digest[k : k + 8], "little") for k in range(0, 64, 8)]
    return [mixed(mixed(epoch ^ one) ^ two) for one, two in pairwise(base)]


def component_window(seed: int, name: str, n: int, index: int) -> int:
    """The window that a component of n windows shows when it is asked for the `index`-th time."""
    epoch, position = divmod(index, n)
    return permuted(n, position, component_keys(seed, name, epoch), 4096)
