"""The draws of a mix: the component and the window at each position of an endless sequence.

`tree.choose` gives the component of position p. If k earlier positions belong to the same component, position p is
its draw k. A component of n windows shows them in epochs of its own: draw k is at `k % n` of its epoch `k // n`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tensorstash.common.checks import shown
from tensorstash.common.dtypes import Int32s, Int64s
from tensorstash.native import kernel, library
from tensorstash.native.permutation import BLOCK, Uint64s, walk
from tensorstash.sampling.draw_table import as_array, by_name, checked_weights
from tensorstash.sampling.hashes import CHUNK, hashes, keys
from tensorstash.sampling.tree import Tree, choose, counts, tree, whole_weights

_SMALL = 1 << 12  # up to here a permutation is drawn uniformly, as a whole
_ROUNDS = 6
_DRAWN = 1 << 18  # the most hashes sorted at a time
_MANY_COMPONENTS = 100  # with more components, calls for more positions at a time are faster


@dataclass(frozen=True, slots=True, eq=False)
class Components:
    """The components of a mix and their shares, from the position on at which `drawn` windows of each have come."""

    names: tuple[str, ...]
    sizes: Int64s  # (components,) windows of each
    weights: list[int]
    tree: Tree
    first: Int64s  # (components,) the number of its first window, if windows are numbered through all components
    drawn: Int64s  # (components,) with a repeated window counted again, so their sum is the position

    @property
    def block(self) -> int:
        """Positions that are best evaluated together."""
        return CHUNK if len(self.sizes) > _MANY_COMPONENTS else BLOCK

    def drawn_before(self, position: int) -> Int64s:
        """The number of windows of each component, `(components,)`, that come before a position."""
        return self.drawn + np.array(counts(self.tree, position - int(self.drawn.sum())), np.int64)

    def flat(self, component: Int32s, within: Int64s) -> Int64s:
        """The numbers of windows among those of all components."""
        return self.first.take(component) + within


def components(sizes: Mapping[str, int], weights: Mapping[str, float] | None) -> Components:
    """The components of a mix from their numbers of windows, which are also the weights if none are given."""
    if not sizes:
        raise ValueError("A mix must have at least one component, got none.")
    names, windows = tuple(sizes), np.array(list(sizes.values()), np.int64)
    if not windows.any():
        raise ValueError(f"A mix must have at least one window; its {len(names):,} components have none.")
    shares = list(sizes.values()) if weights is None else _shares(sizes, weights)
    whole = whole_weights(shares)
    return Components(
        names, windows, whole, tree(whole), np.cumsum(windows) - windows, np.zeros(len(windows), np.int64)
    )


def reweighted(of: Components, weights: Mapping[str, float], drawn: Int64s) -> Components:
    """The components with other weights, from the position on at which `drawn` windows of each have come."""
    whole = whole_weights(_shares(dict(zip(of.names, of.sizes.tolist())), weights))
    return replace(of, weights=whole, tree=tree(whole), drawn=drawn)


def _shares(sizes: Mapping[str, int], weights: Mapping[str, float]) -> list[float]:
    """The weights of the components in their order, checked."""
    if not isinstance(weights, Mapping):
        raise TypeError(f"weights must be a mapping from each name to a number, got {shown(weights)}.")
    names = tuple(sizes)
    given = by_name(weights, names, "the mix", "component")
    for name, weight in zip(names, given):
        if as_array(weight).dtype.kind not in "fiu" or as_array(weight).ndim:
            raise TypeError(
                f"Weights of a mix must be numbers, got {shown(weight)} for component {name!r}. Give a number such "
                "as 1, and 0 to leave a component out."
            )
    shares: list[float] = checked_weights(given, len(names), "component", names).tolist()
    for name, share in zip(names, shares):
        if share and not sizes[name]:
            raise ValueError(
                f"A component with a weight must have windows; {name!r} has none. Leave it out, or give it 0."
            )
    return shares


def mix_draws(of: Components, shuffle: bool, seed: int) -> Callable[[Int64s], tuple[Int32s, Int64s]]:
    """The component and the window at positions, `(k,)` in any order, the lowest and highest less than 2**48 apart.

    Each component is permuted in each of its epochs, or sequential. The returned function caches one permutation, as
    uint16, for each component of up to 4,096 windows, because the next positions need it again. Only one thread at a
    time may call it.
    """
    permuted, sizes = _Permuted(of, seed) if shuffle else None, np.maximum(of.sizes, 1)
    start = int(of.drawn.sum())

    def at(positions: Int64s) -> tuple[Int32s, Int64s]:
        component, within, before = choose(of.tree, positions - start)
        begun, into = np.divmod(of.drawn + before, sizes)
        may_end = (into + within.max(initial=0) >= sizes).any()  # whether a component may end an epoch
        within += into.take(component)  # takes half the time of an index
        later = np.zeros_like(within)
        if may_end:  # dividing every position would double the time
            beyond = np.flatnonzero(within >= sizes.take(component))
            size = sizes[component[beyond]].view(np.uint64)  # unsigned numbers are divided faster
            later[beyond], within[beyond] = np.divmod(within[beyond].view(np.uint64), size)
        return component, within if permuted is None else permuted(component, begun, later, within)

    return at


def in_epoch(of: Components, seed: int, epoch: int) -> Callable[[Int32s, Int64s], Int64s]:
    """The ids at positions `within` one epoch of each component, in the order in which `mix_draws` permutes it."""
    permuted, epochs = _Permuted(of, seed), np.full(len(of.sizes), epoch, np.int64)
    return lambda component, within: permuted(component, epochs, np.zeros_like(within), within)


class _Permuted:
    """The permutations of all components and their epochs.

    Small ones are drawn as a whole: the order of keyed hashes, of which the latest of each component is kept. Large
    ones are those of the network of `shuffled`.
    """

    def __init__(self, of: Components, seed: int) -> None:
        self._keys_of = np.stack([keys(f"tensorstash mix 1, seed {seed}, component {name}") for name in of.names])
        self._sizes = np.maximum(of.sizes, 1)  # a component without windows is never drawn
        self._is_small = of.sizes <= _SMALL
        kept = np.where(self._is_small, of.sizes, 0)
        self._first = np.cumsum(kept) - kept
        self._kept = np.zeros(int(kept.sum()), np.uint16)
        self._epoch = np.full(len(kept), -1, np.int64)  # of the kept permutation of each component

    def __call__(self, component: Int32s, begun: Int64s, later: Int64s, within: Int64s) -> Int64s:
        """The ids at positions `within` an epoch of each component: of component c, epoch `begun[c] + later`."""
        if self._is_small.all():
            return self._small(component, begun[component] + later, within)
        if not self._is_small.any():
            return self._large(component, begun, later, within)
        small = self._is_small[component]
        ids, few, many = np.empty_like(within), np.flatnonzero(small), np.flatnonzero(~small)
        ids[few] = self._small(component[few], begun[component[few]] + later[few], within[few])
        ids[many] = self._large(component[many], begun, later[many], within[many])
        return ids

    def _small(self, component: Int32s, epoch: Int64s, within: Int64s) -> Int64s:
        ids = self._kept[self._first[component] + within].astype(np.int64)
        other = np.flatnonzero(self._epoch[component] != epoch)
        if len(other):
            other = other[np.argsort(component[other], kind="stable")]
            for part in np.split(other, np.flatnonzero(np.diff(component[other])) + 1):
                ids[part] = self._of_component(int(component[part[0]]), epoch[part], within[part])
        return ids

    def _of_component(self, component: int, epoch: Int64s, within: Int64s) -> Int64s:
        """The ids in epochs of one small component; keeps the permutation of the last epoch."""
        ids, n = np.empty_like(within), int(self._sizes[component])
        epochs, which = np.unique(epoch, return_inverse=True)
        per_group = max(1, _DRAWN // n)
        for low in range(0, len(epochs), per_group):
            some = epochs[low : low + per_group]
            first, second = self._keys(np.full(len(some), component, np.int32), some, 2)
            drawn = np.argsort(hashes(np.arange(n), first[:, None], second[:, None]), axis=1, kind="stable")
            inside = np.flatnonzero((which >= low) & (which < low + per_group))
            ids[inside] = drawn[which[inside] - low, within[inside]]
        start = int(self._first[component])
        self._kept[start : start + n], self._epoch[component] = drawn[-1], epochs[-1]
        return ids

    def _large(self, component: Int32s, begun: Int64s, later: Int64s, within: Int64s) -> Int64s:
        count, epochs = len(self._sizes), int(later.max(initial=0)) + 1
        if epochs * count > 4 * (len(component) + count):  # scattered positions: few share an epoch
            which = np.arange(len(component), dtype=np.int32)
            return permute(self._grids(component, begun[component] + later), which, within)
        which = component if epochs == 1 else component + (later * count).astype(np.int32)
        of_all = np.tile(np.arange(count, dtype=np.int32), epochs)
        return permute(self._grids(of_all, np.add.outer(np.arange(epochs), begun).ravel()), which, within)

    def _grids(self, component: Int32s, epoch: Int64s) -> Uint64s:
        return grids(self._sizes[component], self._keys(component, epoch, _ROUNDS))

    def _keys(self, component: Int32s, epoch: Int64s, count: int) -> list[Uint64s]:
        """The first `count` keys of epochs of components, from the eight keys of each component.

        Key k of epoch e is the hash of e with keys k and k + 1 of these eight.
        """
        base = self._keys_of[component]
        return [hashes(epoch, base[:, k], base[:, k + 1]) for k in range(count)]


def grids(sizes: Int64s, chosen: Sequence[Uint64s]) -> Uint64s:
    """Permutations for `permute`, of `sizes` ids each, up to 2**52, with six keys: columns as those of `grid`."""
    height = np.sqrt(sizes - 1).astype(np.int64) + 1
    height += height % 2  # with an even side both parities occur
    return np.stack([*np.stack([sizes, height, -(-sizes // height)]).astype(np.uint64), *chosen])


def permute(grids: Uint64s, which: Int32s, positions: Int64s) -> Int64s:
    """The ids at positions, `(k,)`, each in the permutation with the number `which`, as `shuffled` computes it.

    A column of `grids`, `(9, permutations)`, holds the number of ids, the height and width of the grid, and six keys.
    """
    if library.LIBRARY is not None:
        return kernel.permute(kernel.permutations(grids.T), positions, which)
    n, height, width, *chosen = (values[which] for values in grids)
    return walk(positions, n, height, width, chosen)
