"""Costs of custom calls: from a file of the user, by built-in rules, or as registered for the call's target.

--cost my_kernel=my_kernel.json        {"seconds": 0.0012}     or     {"flops": 1e12, "bytes": 3e9}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from collectives.cost.estimator import CostError
from collectives.cost.host_link import HOST_MOVES
from spmd.analysis.attention_cost import AttentionShape, attention_shape
from spmd.analysis.cost import op_cost
from spmd.custom_call import custom_call
from spmd.hlo.instruction import HloInstruction
from spmd.json_fields import read_fields
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import CustomCallAttrs
from spmd.ops.custom_call import ALLOCATE_BUFFER
from spmd.ops.opdef import OpCost, SizeOf, byte_size
from spmd.shape import as_array, leaves
from spmd.text.stage import LOGICAL_CALLS

MAX_BYTES = 1 << 12
_SECONDS = (0.0, 1e6)
_AMOUNT = (0.0, 1e30)

#: Targets without a kernel: they annotate the sharding, layout or memory of a value, or allocate it uninitialized.
_NO_KERNEL = LOGICAL_CALLS | {"LayoutConstraint", "annotate_device_placement", ALLOCATE_BUFFER}
_TOP_K = "TopK"


@dataclass(frozen=True, slots=True)
class CallCost:
    """Cost of one execution of a custom call.

    The cost is ``seconds``, or that of ``work`` if ``seconds`` is None. If ``attention`` is not None, the work runs at
    the machine's rate of fused attention of that shape.
    """

    seconds: float | None
    work: OpCost = field(default_factory=OpCost)
    attention: AttentionShape | None = None


_NOTHING = CallCost(0.0)


def has_rule(target: str) -> bool:
    """Return whether the cost of custom calls of ``target`` is known without a statement of the user."""
    return (
        target in _NO_KERNEL
        or target in HOST_MOVES
        or target == _TOP_K
        or custom_call(target).cost is not None
    )


def call_cost(
    call: HloInstruction,
    given: Mapping[str, CallCost],
    size_of: SizeOf = byte_size,
    *,
    by_bytes: bool = False,
) -> CallCost:
    """Return the cost of a custom call. ``given`` holds costs by target, which take precedence; ``size_of`` gives the
    bytes of arrays.

    A call with an unknown target costs the bytes of its arrays if ``by_bytes`` is True; otherwise it raises CostError.
    """
    target = call.attrs_as(CustomCallAttrs).target
    if target in given:
        return given[target]
    if target in _NO_KERNEL:
        return _NOTHING
    if target == _TOP_K:
        return CallCost(None, _top_k_work(call, size_of))
    if not has_rule(target) and not by_bytes:
        raise CostError(
            f"{call!r}: the cost of a custom call of {target!r} is unknown; state it by --cost {target}=F.json"
        )
    return CallCost(None, op_cost(call, size_of), attention=attention_shape(call))


def _top_k_work(call: HloInstruction, size_of: SizeOf) -> OpCost:
    """Return the work of a TopK call by a heap: each element is compared along a path from the root to a leaf."""
    selected = as_array(next(leaf for _, leaf in leaves(call.shape))).dims[-1]
    comparisons = call.operand(0).array_shape.num_elements * selected.bit_length()
    return OpCost(flops=float(comparisons), bytes_accessed=op_cost(call, size_of).bytes_accessed)


def read_call_cost(data: bytes, where: str) -> CallCost:
    """Parse a cost in JSON: ``{"seconds": s}``, or any of ``flops``, ``transcendentals`` and ``bytes``.

    ``where`` names the file in errors. Raises CostError if the data has any other form.
    """
    fields = read_fields(data, where, "cost of a custom call", MAX_BYTES, CostError)
    if fields.has("seconds"):
        cost = CallCost(fields.number("seconds", _SECONDS))
        fields.done()
        return cost
    if not fields.names:
        raise CostError(f"{where}: expected seconds, or flops and bytes")
    names = ("flops", "transcendentals", "bytes")
    work = OpCost(*(fields.number(name, _AMOUNT, 0.0) for name in names))
    fields.done()
    return CallCost(None, work)
