"""Custom calls that the compiler knows by name: one public record per target, to which any package adds parts.

register_custom_call("my_op", evaluate=lambda instruction, operands: ..., cost=...)
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeAlias

from spmd.hlo.instruction import HloInstruction
from spmd.lazy_dataclass import dataclass
from spmd.ops.opdef import OpCost

#: (instruction, operand values) -> value; values as in spmd.evaluator.value.
EvaluateCustomCall: TypeAlias = Callable[[HloInstruction, tuple[Any, ...]], Any]
#: (instruction) -> a sharding rule of the partitioner, or its text in Shardy's notation.
CustomCallRule: TypeAlias = Callable[[HloInstruction], Any]
#: (instruction, partitioner context) -> the sharded value of each result leaf; None defers to the sharding rule.
PartitionCustomCall: TypeAlias = Callable[[HloInstruction, Any], Any]
#: (instruction, emission context) -> the code that the back end runs.
EmitCustomCall: TypeAlias = Callable[[HloInstruction, Any], Any]


@dataclass(frozen=True, slots=True)
class CustomCall:
    """Registration of one custom-call target; a field that is None was not registered."""

    evaluate: EvaluateCustomCall | None = None
    sharding_rule: CustomCallRule | None = None
    partition: PartitionCustomCall | None = None
    cost: Callable[[HloInstruction], OpCost] | None = None
    emit: EmitCustomCall | None = None


_CALLBACK = re.compile(r"python_\w*callback|callback_\w*python")
_CUSTOM_CALLS: dict[str, CustomCall] = {}
_UNKNOWN = CustomCall()


def custom_call(target: str) -> CustomCall:
    """Return the record of ``target``; all parts are None for an unregistered target."""
    return _CUSTOM_CALLS.get(target, _UNKNOWN)


def register_custom_call(
    target: str,
    *,
    evaluate: EvaluateCustomCall | None = None,
    sharding_rule: CustomCallRule | None = None,
    partition: PartitionCustomCall | None = None,
    cost: Callable[[HloInstruction], OpCost] | None = None,
    emit: EmitCustomCall | None = None,
) -> None:
    """Add the given parts to the record of ``target``. Raises ValueError if a part is already registered."""
    known = custom_call(target)
    given = CustomCall(evaluate, sharding_rule, partition, cost, emit)
    both = {
        field.name: (getattr(known, field.name), getattr(given, field.name))
        for field in fields(CustomCall)
    }
    for name, (old, new) in both.items():
        if old is not None and new is not None:
            raise ValueError(f"custom call {target}: {name} is registered twice")
    _CUSTOM_CALLS[target] = CustomCall(**{name: old or new for name, (old, new) in both.items()})


def advice_for(target: str) -> str:
    """Return the end of a message about a custom call of ``target`` that cannot be evaluated."""
    if _CALLBACK.search(target):
        return (
            "it calls a Python function of the process that made the module, which a file does not hold; "
            "--without-callbacks removes calls without results, such as jax.debug.print, and "
            "register_custom_call(target, evaluate=...) takes a function"
        )
    if target == "CustomSPMDPartitioning":
        return (
            "the partition and lowering functions of custom_partitioning are in the process that made the module, and "
            "a file does not hold them; lower the function without custom_partitioning, or register its evaluation by "
            "register_custom_call(target, evaluate=...)"
        )
    return f"register one by register_custom_call({target!r}, evaluate=...)"
