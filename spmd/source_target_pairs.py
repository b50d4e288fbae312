"""The (source, target) pairs of a collective-permute as a value.

Pairs that a partitioner makes follow a pattern, the same for 8 devices and for 16,384: ``LinePairs`` states it in a
few numbers. ``ListedPairs`` is the form in which texts and protos give pairs, one by one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np

from spmd.device import IotaTile, check_device_count
from spmd.iota import strides_of
from spmd.lazy_dataclass import dataclass

Pair: TypeAlias = tuple[int, int]
Ids: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.int64]]

#: Number of pairs that are compared at a time, for patterns of different forms.
_BLOCK: Final = 1 << 14


class SourceTargetPairs(ABC):
    """(source, target) pairs in a fixed order.

    Two values are equal where they hold the same pairs in the same order, whatever their forms. What writes pairs out
    is ``expand`` and iteration, ``part``, and the comparison of two forms whose ends agree; all else takes time by the
    size of the form.
    """

    __slots__ = ()

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def moved(self) -> int:
        """Return the number of pairs of two different positions."""

    @property
    @abstractmethod
    def smallest(self) -> int:
        """The smallest id; 0 if there is no pair."""

    @property
    @abstractmethod
    def largest(self) -> int:
        """The largest id; -1 if there is no pair."""

    @abstractmethod
    def repeats(self) -> Pair:
        """Return the largest number of times that one id is a source, and that one is a target."""

    @abstractmethod
    def part(self, start: int, stop: int) -> tuple[Pair, ...]:
        """Return the pairs ``start`` to ``stop`` (exclusive), or fewer if there are not so many."""

    def expand(self) -> tuple[Pair, ...]:
        """Return all pairs. Raises UnsupportedError for more than ``MAX_DEVICES`` pairs that are not a list already."""
        check_device_count(len(self))
        return self.part(0, len(self))

    @abstractmethod
    def ends(self) -> Ids:
        """Return all pairs as an array [pairs, 2]. Raises as ``expand`` does."""

    def __iter__(self) -> Iterator[Pair]:
        return iter(self.expand())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SourceTargetPairs):
            return NotImplemented
        if self is other:
            return True
        if len(self) != len(other) or self._ends() != other._ends():
            return False
        return self._is_identical(other) or all(
            self.part(i, i + _BLOCK) == other.part(i, i + _BLOCK)
            for i in range(0, len(self), _BLOCK)
        )

    def __hash__(self) -> int:
        """Hash the properties that every representation knows without listing the pairs."""
        return hash((len(self), self._ends()))

    def _ends(self) -> tuple[Pair, ...]:
        """Return the first two pairs and the last one."""
        return (*self.part(0, 2), *self.part(max(len(self) - 1, 0), len(self)))

    @abstractmethod
    def _is_identical(self, other: SourceTargetPairs) -> bool:
        """Return whether both have the same representation, so that they are equal without listing the pairs."""


@dataclass(frozen=True, slots=True, eq=False)
class ListedPairs(SourceTargetPairs):
    """Pairs one by one. Nothing says that they are distinct or in range."""

    pairs: tuple[Pair, ...] = ()

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def moved(self) -> int:
        return sum(source != target for source, target in self.pairs)

    @property
    def smallest(self) -> int:
        return min(map(min, self.pairs), default=0)

    @property
    def largest(self) -> int:
        return max(map(max, self.pairs), default=-1)

    def repeats(self) -> Pair:
        sources = Counter(source for source, _ in self.pairs)
        targets = Counter(target for _, target in self.pairs)
        return max(sources.values(), default=0), max(targets.values(), default=0)

    def part(self, start: int, stop: int) -> tuple[Pair, ...]:
        return self.pairs[start:stop]

    def expand(self) -> tuple[Pair, ...]:
        return self.pairs

    def ends(self) -> Ids:
        return np.array(self.pairs, np.int64).reshape(-1, 2)

    def _is_identical(self, other: SourceTargetPairs) -> bool:
        return isinstance(other, ListedPairs) and self.pairs == other.pairs


class Move(ABC):
    """Pattern of (source, target) pairs among the positions 0..n-1 of one line. No position is a source twice or a
    target twice.

    If there are pairs, some of them contain 0 and n-1.
    """

    __slots__ = ()

    def count(self, n: int) -> int:
        """Return the number of pairs in a line of ``n``."""
        return n

    @abstractmethod
    def moved(self, n: int) -> int:
        """Pairs of two different positions."""

    @abstractmethod
    def positions(self, k: Ids, n: int) -> tuple[Ids, Ids]:
        """Return sources and targets of the pairs numbered ``k`` in a line of ``n``."""


@dataclass(frozen=True, slots=True)
class Shift(Move):
    """Each position sends to the one ``distance`` further on, if there is one. 1 in a line of 3: 0 -> 1, 1 -> 2."""

    distance: int

    def count(self, n: int) -> int:
        return max(n - abs(self.distance), 0)

    def moved(self, n: int) -> int:
        return self.count(n) if self.distance else 0

    def positions(self, k: Ids, n: int) -> tuple[Ids, Ids]:
        source = k + max(-self.distance, 0)
        return source, source + self.distance


@dataclass(frozen=True, slots=True)
class Rotation(Move):
    """Each position sends to the one ``distance`` further on, cyclically. 1 in a line of 3: 0 -> 1, 1 -> 2, 2 -> 0."""

    distance: int

    def moved(self, n: int) -> int:
        return n if self.distance % n else 0

    def positions(self, k: Ids, n: int) -> tuple[Ids, Ids]:
        return k, (k + self.distance) % n


@dataclass(frozen=True, slots=True)
class Mirror(Move):
    """Each position sends to its mirror image. A line of 3: 0 -> 2, 1 -> 1, 2 -> 0."""

    def moved(self, n: int) -> int:
        return n - n % 2

    def positions(self, k: Ids, n: int) -> tuple[Ids, Ids]:
        return k, n - 1 - k


@dataclass(frozen=True, slots=True)
class DigitPermutation(Move):
    """Positions in digits of ``sizes``, major first: digit ``taken[i]`` of a target is digit i of its source.

    ``taken`` is a permutation, and ``sizes[taken[i]] == sizes[i]``. Sizes (2, 2), taken (1, 0), in target order:
    0 -> 0, 2 -> 1, 1 -> 2, 3 -> 3.
    """

    sizes: tuple[int, ...]
    taken: tuple[int, ...]

    def __post_init__(self) -> None:
        if tuple(self.sizes[i] for i in self.taken) != self.sizes or len(set(self.taken)) != len(
            self.sizes
        ):
            raise ValueError(f"digits of sizes {self.sizes} cannot change places as {self.taken}")

    def moved(self, n: int) -> int:
        """Return the number of moved positions: a position stays if all digits of each cycle are equal."""
        stays, seen = 1, set[int]()
        for first in range(len(self.sizes)):
            if first not in seen:
                stays *= self.sizes[first]
            while first not in seen:
                seen.add(first)
                first = self.taken[first]
        return n - stays

    def positions(self, k: Ids, n: int) -> tuple[Ids, Ids]:
        strides = strides_of(self.sizes)
        source = np.zeros_like(k)
        for stride, taken in zip(strides, self.taken, strict=True):
            source += stride * (k // strides[taken] % self.sizes[taken])
        return source, k


@dataclass(frozen=True, eq=False)
class LinePairs(SourceTargetPairs):
    """Ids 0..N-1 in lines, all of which have the same ``move``.

    ``lines`` has dims (number of lines, length), as replica groups in iota form have; pairs stand line by line.

        [2,4]<=[8], Shift(1)               {0,1},{1,2},{2,3},{4,5},{5,6},{6,7}
        [4,2]<=[2,4]T(1,0), Rotation(1)    {0,4},{4,0},{1,5},{5,1},{2,6},{6,2},{3,7},{7,3}
    """

    lines: IotaTile
    move: Move

    @property
    def _length(self) -> int:
        return self.lines.dims[1]

    def __len__(self) -> int:
        return self.lines.dims[0] * self.move.count(self._length)

    @property
    def moved(self) -> int:
        return self.lines.dims[0] * self.move.moved(self._length)

    @property
    def smallest(self) -> int:
        """The first line begins with id 0."""
        return 0

    @property
    def largest(self) -> int:
        """The last line ends with the last id."""
        return math.prod(self.lines.dims) - 1 if len(self) else -1

    def repeats(self) -> Pair:
        return (1, 1) if len(self) else (0, 0)

    def part(self, start: int, stop: int) -> tuple[Pair, ...]:
        return tuple(map(tuple, self._ends_of(start, stop).tolist()))

    def ends(self) -> Ids:
        check_device_count(len(self))
        return self._ends_of(0, len(self))

    def _ends(self) -> tuple[Pair, ...]:
        return self._computed_ends

    @cached_property
    def _computed_ends(self) -> tuple[Pair, ...]:
        """The result of ``_ends``, which passes ask for whenever they look up what they know of a permute."""
        return SourceTargetPairs._ends(self)

    def _ends_of(self, start: int, stop: int) -> Ids:
        """Return sources and targets of the pairs ``start`` to ``stop`` (exclusive)."""
        numbers = np.arange(start, min(stop, len(self)), dtype=np.int64)
        if not numbers.size:
            return numbers.reshape(0, 2)
        line, k = np.divmod(numbers, self.move.count(self._length))
        ends = self.move.positions(k, self._length)
        return np.stack([self.lines.at(line * self._length + x) for x in ends], axis=1)

    def _is_identical(self, other: SourceTargetPairs) -> bool:
        return (
            isinstance(other, LinePairs) and self.lines == other.lines and self.move == other.move
        )
