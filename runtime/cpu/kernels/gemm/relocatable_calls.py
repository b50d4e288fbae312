"""Native calls of matrix products whose operands can be relocated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runtime.cpu.kernels.native_call import NativeAction, NativeCall
from runtime.cpu.kernels.repeat_ir import repeated
from spmd.literal import NDArray


@dataclass(frozen=True, slots=True)
class RelocatableCall:
    """Calls, and the addresses of the record words with the addresses of lhs, rhs and result."""

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
        """Exchange lhs and rhs: the same calls as a product of the transposed matrices."""
        return RelocatableCall(self.calls, self.rhs, self.lhs, self.result)

    def repeated(self, count: int, steps: Sequence[int]) -> RelocatableCall:
        """Repeat ``count`` times, advancing lhs, rhs and result by ``steps`` bytes each time."""
        moves = [
            (field, step)
            for fields, step in zip((self.lhs, self.rhs, self.result), steps, strict=True)
            for field in fields
        ]
        return RelocatableCall(repeated(count, self.calls, moves), self.lhs, self.rhs, self.result)


def moving(action: NativeAction) -> RelocatableCall:
    """Return ``action``, one call whose record begins with the three addresses, as relocatable."""
    lhs, rhs, result = ((action.calls[0].record + 8 * word,) for word in range(3))
    return RelocatableCall(action.calls, lhs, rhs, result)


def has_runs(matrix: NDArray) -> bool:
    """Return whether rows are contiguous."""
    return bool(matrix.shape[1] == 1 or matrix.strides[1] == matrix.itemsize)
