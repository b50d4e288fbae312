"""Custom calls: targets known by name, and three that carry a sharding rule of their own.

fuzz.product      [i, k] x [k, j] -> [i, j]     reduction={k}
fuzz.running_sum  [i, j] -> [i, j]              need_replication={j}, a running sum along j
fuzz.mirror       [i, j] -> [j, i]              permutation={i}, the other way round along i
"""

from __future__ import annotations

from typing import Any

import numpy as np

from spmd.custom_call import register_custom_call
from spmd.hlo import Annotations, HloInstruction, Opcode
from spmd.ops.attrs import CustomCallAttrs
from spmd.shape import ArrayShape, Shape, TupleShape
from tests.differential.generator.combining import summed
from tests.differential.generator.table import operation
from tests.differential.generator.writer import F32, MAX_ELEMENTS, S32, Value, Writer

PRODUCT, RUNNING_SUM, MIRROR = "fuzz.product", "fuzz.running_sum", "fuzz.mirror"

register_custom_call(PRODUCT, evaluate=lambda _, operands: np.matmul(*operands))
register_custom_call(RUNNING_SUM, evaluate=lambda _, operands: _running_sum(operands[0]))
register_custom_call(MIRROR, evaluate=lambda _, operands: operands[0][::-1].T.copy())


def _running_sum(x: Any) -> Any:
    return np.cumsum(x, axis=1, dtype=x.dtype)


def _call(
    w: Writer, target: str, operands: list[HloInstruction], shape: Shape, rule: str = ""
) -> HloInstruction:
    hlo = w.builder.create(Opcode.CUSTOM_CALL, operands, CustomCallAttrs(target), shape=shape)
    if rule:
        text = f"#sdy.op_sharding_rule<{rule}, custom>"
        hlo.annotations = Annotations(frontend_attributes=(("xla.sdy.sharding_rule", text),))
    return hlo


@operation(1, *(f"custom-call {target}" for target in (PRODUCT, RUNNING_SUM, MIRROR)))
def call_with_a_rule(w: Writer) -> Value | None:
    x = w.pick(lambda v: v.rank == 2 and v.dtype is F32 and v.whole)
    if x is None or w.chance(0.3):
        x = w.of(F32, w.dims(2))
    i, j = x.dims
    target = w.aimed((PRODUCT, RUNNING_SUM, MIRROR), lambda t: f"custom-call {t}")
    if target == MIRROR:
        rule = f"([i, j])->([j, i]) {{i={i}, j={j}}} permutation={{i}}"
        hlo = _call(w, target, [x.hlo], ArrayShape(F32, (j, i)), rule)
        return w.keep(w.result(hlo, x.bound, x))
    if target == RUNNING_SUM:
        rule = f"([i, j])->([i, j]) {{i={i}, j={j}}} need_replication={{j}}"
        hlo = _call(w, target, [x.hlo], ArrayShape(F32, (i, j)), rule)
        return summed(w, Value(hlo, 0.0), [x], x.bound * max(j, 1))
    columns = w.size()
    if max(j, i) * columns > MAX_ELEMENTS:
        return None
    y = w.of(F32, (j, columns))
    rule = f"([i, k], [k, j])->([i, j]) {{i={i}, k={j}, j={columns}}} reduction={{k}}"
    hlo = _call(w, target, [x.hlo, y.hlo], ArrayShape(F32, (i, columns)), rule)
    return summed(w, Value(hlo, 0.0), [x, y], x.bound * y.bound * j)


_PLACES = ("MoveToHost", "MoveToDevice")


@operation(0.7, *(f"custom-call {target}" for target in (*_PLACES, "TopK")))
def call_by_name(w: Writer) -> Value | None:
    """Moves between memories, and the k largest of each row."""
    target = w.aimed((*_PLACES, "TopK"), lambda t: f"custom-call {t}")
    if target in _PLACES:
        x = w.pick()
        if x is None:
            return None
        return w.keep(w.result(_call(w, target, [x.hlo], x.hlo.array_shape), x.bound, x))
    x = w.pick(lambda v: v.rank > 0 and v.dtype is F32 and v.stable and v.dims[-1] > 0)
    if x is None:
        return None
    dims = (*x.dims[:-1], w.integer(1, x.dims[-1]))
    shape = TupleShape((ArrayShape(F32, dims), ArrayShape(S32, dims)))
    hlo = _call(w, target, [x.hlo], shape)
    w.keep(w.result(w.builder.get_tuple_element(hlo, 0), x.bound, x))
    return w.keep(Value(w.builder.get_tuple_element(hlo, 1), float(x.dims[-1])))
