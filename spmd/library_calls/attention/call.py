"""A call of fused attention, whichever library it names: its operands and results by name, its mask and its scale.

    q, dq       [b,h,s,d]      queries: b batches, h heads, s positions
    k, dk       [b,g,t,d]      keys: each of g heads is read by h / g heads of queries
    v, dv       [b,g,t,e]
    out, dout   [b,h,s,e]
    statistics  [b,h,s]        log of the sum of the exponentials of a query's scores
    bias, dbias [1 or b, 1 or h, s, t]
    q_lengths, kv_lengths      [b], or [b + 1] if they are cumulative
    dkv         [b,t,2,g,d]    dk and dv in one

Layouts are "bhsd", as above, or "bshd", positions before heads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

from spmd.hlo.instruction import HloInstruction
from spmd.lazy_dataclass import dataclass
from spmd.ops.custom_call import custom_call_target
from spmd.registry import Registry

T = TypeVar("T")

HEADS_FIRST, POSITIONS_FIRST = "bhsd", "bshd"


@dataclass(frozen=True, slots=True)
class AttentionMask:
    """Conditions that a key must satisfy so that a query sees it; positions of both count from 0.

    causal: the key's position is at most the query's.
    window: the key's position is greater than the query's minus ``window``; 0: no such condition.
    padded: both positions are less than the lengths of their batch.
    """

    causal: bool = False
    window: int = 0
    padded: bool = False

    def may_hide_all(self, queries: int, keys: int) -> bool:
        """Return whether a query may see no key."""
        return self.padded or keys == 0 or 0 < self.window <= queries - keys


@dataclass(frozen=True)
class AttentionCall:
    """A call of fused attention.

    operand_names: of the first operands; "" for one that is not read. Operands that follow are not read either.
    result_names: of the first results. Results that follow contain zeros.
    operand_layout, result_layout: of all arrays of queries, keys and values.
    packed: the operand k has keys and values, [b,t,2,g,d].
    cumulative: lengths are given as the differences of neighbors.
    """

    instruction: HloInstruction
    operand_names: tuple[str, ...]
    result_names: tuple[str, ...]
    operand_layout: str
    result_layout: str
    mask: AttentionMask
    scale: float
    packed: bool = False
    cumulative: bool = False

    @property
    def is_backward(self) -> bool:
        return "dout" in self.operand_names

    def by_name(self, operands: Sequence[T]) -> dict[str, T]:
        """Return the operands that are read, by their names."""
        return {name: x for name, x in zip(self.operand_names, operands, strict=False) if name}


#: Raises UnsupportedError if the call uses features of its library that are not known.
ReadCall: TypeAlias = Callable[[HloInstruction], AttentionCall]

ATTENTION_CALLS: Registry[str, ReadCall] = Registry("call of fused attention")


def is_attention_call(instruction: HloInstruction) -> bool:
    return custom_call_target(instruction) in ATTENTION_CALLS


def attention_call(instruction: HloInstruction) -> AttentionCall:
    """Read a call for which ``is_attention_call`` is True. Raises UnsupportedError if it uses unknown features."""
    return ATTENTION_CALLS[custom_call_target(instruction)](instruction)
