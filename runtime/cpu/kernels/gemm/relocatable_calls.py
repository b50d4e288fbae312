"""Native calls of matrix products that can be moved over larger arrays, and how matrices lie that they take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runtime.cpu.kernels.native_call import NativeAction, NativeCall
from runtime.cpu.kernels.repeat_ir import repeated
from spmd.literal import NDArray


@dataclass(frozen=True, slots=True)
class RelocatableCall:
    """Calls, and the addresses of the words of their records that say where lhs, rhs and result begin."""

    calls: tuple[NativeCall, ...]
    lhs: tuple[int, ...] = ()
    rhs: tuple[int, ...] = ()
    result: tuple[int, ...] = ()

    def then(self, other: RelocatableCall) -> RelocatableCall:
        return RelocatableCall(
            self.calls + other.calls,
            self.lhs + other.lhs,
            self.rhs + other.rhs,
            self.result + other.result,
        )

    def exchanged(self) -> RelocatableCall:
        """lhs for rhs: the same calls, seen as the product of the transposed matrices."""
        return RelocatableCall(self.calls, self.rhs, self.lhs, self.result)

    def repeated(self, count: int, steps: Sequence[int]) -> RelocatableCall:
        """``count`` times, lhs, rhs and result going on by ``steps`` bytes; words keep their places."""
        moves = [
            (word, step)
            for words, step in zip((self.lhs, self.rhs, self.result), steps, strict=True)
            for word in words
        ]
        return RelocatableCall(repeated(count, self.calls, moves), self.lhs, self.rhs, self.result)


def moving(action: NativeAction) -> RelocatableCall:
    """One call, whose record begins with the three addresses."""
    lhs, rhs, result = ((action.calls[0].record + 8 * word,) for word in range(3))
    return RelocatableCall(action.calls, lhs, rhs, result)


def has_runs(matrix: NDArray) -> bool:
    """Rows without gaps."""
    return bool(matrix.shape[1] == 1 or matrix.strides[1] == matrix.itemsize)
