"""Loops, branches and calls around a few operations of the table."""

from __future__ import annotations

import math
from dataclasses import replace

from spmd.hlo import HloComputation, Opcode
from spmd.shape import ArrayShape
from tests.differential.generator.annotations import annotate_in_place
from tests.differential.generator.steering import steer
from tests.differential.generator.table import OPERATIONS, Entry, operation
from tests.differential.generator.writer import F32, PRED, S32, SIZE_LIMIT, Value, Writer

#: How much more often the operation is written that a program is to be about.
_FOCUS = 12.0
#: How often an operation is one that the program aims at.
_AIMED = 0.2
_ATTEMPTS = 6


def write_operations(w: Writer, count: int) -> None:
    """``count`` operations of the table, some of whose results then get an annotation."""
    in_region = bool(w.manual_axes)
    entries = [
        e
        for e in sorted(OPERATIONS, key=lambda e: e.name)  # whatever was imported first
        if (w.may_nest or e.nested) and not (in_region and e.name == "manual_region")
    ]
    weights = [e.weight * (_FOCUS if e.name == w.focus else 1.0) for e in entries]
    total = sum(weights)
    chances = [weight / total for weight in weights]
    aimed = [e for e in entries if w.aims_at(*e.rows)]
    written = attempts = 0
    while written < count and attempts < 4 * count:
        attempts += 1
        if aimed and w.chance(_AIMED):
            written += _write_aimed(w, w.choose(aimed))
        else:
            written += _write(w, entries[int(w.rng.choice(len(entries), p=chances))])


def write_what_is_missing(w: Writer) -> None:
    """A few more attempts at each cell that the program aims at and has not annotated anything for."""
    for cell in w.aims:
        entries = [e for e in sorted(OPERATIONS, key=lambda e: e.name) if cell.row in e.rows]
        for _ in range(_ATTEMPTS):
            if not entries or any(reached == cell for reached, _ in w.steered):
                break
            _write_aimed(replace(w, aims=(cell,)), w.choose(entries))


def _write_aimed(w: Writer, entry: Entry) -> bool:
    if w.chance(0.5):
        w.fitting(w.choose((F32, F32, S32)))
    return _write(w, entry)


def _write(w: Writer, entry: Entry) -> bool:
    """Write an operation, and return whether it found something to apply to."""
    before = len(w.builder.computation)
    value = entry.write(w)
    if not entry.steers:
        steer(w, w.builder.computation.instructions[before:])
    if value is None:
        return False
    if w.chance(0.2):
        w.pool.append(w.annotate(w, value))
    elif w.chance(0.05):
        annotate_in_place(w, value)
    return True


def nested_writer(w: Writer, name: str) -> tuple[Writer, HloComputation]:
    computation = w.module.new_computation(name)
    # Callees stand before their callers.
    w.module.computations.insert(0, w.module.computations.pop())
    inner = replace(
        w,
        builder=w.builder.within(computation),
        pool=[],
        steered=[],
        parameters=None,
        may_nest=False,
    )
    return inner, computation


def _state_of(w: Writer, count: int) -> list[Value]:
    found = [w.floats()]
    for _ in range(count - 1):
        found.append(w.pick(lambda v: v.rank > 0) or found[0])
    return found


def _like(w: Writer, x: Value) -> Value:
    """A value of x's shape from this computation, no larger than x and no less whole or stable."""
    b = w.builder
    y = w.pick(
        lambda v: (
            v.dtype is x.dtype
            and v.dims == x.dims
            and (v.whole or not x.whole)
            and (v.stable or not x.stable)
        )
    )
    if y is None:
        return w.fresh(x.dtype, x.dims)
    if not x.is_float or y.bound <= x.bound:
        return y
    limit = b.scalar(x.dtype, x.bound)
    return Value(b.clamp(b.negate(limit), y.hlo, limit), x.bound, y.whole, y.stable)


@operation(1.5, Opcode.WHILE, nested=False)
def while_loop(w: Writer) -> Value | None:
    """A counted loop of 0 to 3 trips that carries one or two arrays."""
    state = [replace(v, bound=max(v.bound, 3.0)) for v in _state_of(w, w.integer(1, 2))]
    if any(v.is_float and v.bound > SIZE_LIMIT[v.dtype] for v in state):
        return None
    b = w.builder
    trips = w.integer(0, 3)
    initial = b.tuple([b.scalar(S32, 0), *(v.hlo for v in state)])

    condition = nested_writer(w, "condition")[0].builder
    carried = condition.parameter(0, initial.shape, "state")
    count = condition.get_tuple_element(carried, 0)
    condition.computation.root = condition.compare(count, condition.scalar(S32, trips), "LT")

    inner, body = nested_writer(w, "body")
    ib = inner.builder
    carried = ib.parameter(0, initial.shape, "state")
    number = ib.get_tuple_element(carried, 0)
    inner.pool = [Value(number, 4.0)]
    for position, v in enumerate(state):
        inner.pool.append(replace(v, hlo=ib.get_tuple_element(carried, position + 1)))
    write_operations(inner, w.integer(1, 4))
    following = [_like(inner, v) for v in state]
    body.root = ib.tuple([ib.add(number, ib.scalar(S32, 1)), *(v.hlo for v in following)])

    loop = b.while_loop(initial, condition.computation, body)
    results = [
        w.keep(replace(v, hlo=b.get_tuple_element(loop, position + 1)))
        for position, v in enumerate(state)
    ]
    return results[-1]


@operation(1, Opcode.CONDITIONAL, nested=False)
def conditional(w: Writer) -> Value | None:
    """Two branches on a pred, or two to three on an s32; each takes a tuple or an array."""
    state = [replace(v, bound=max(v.bound, 3.0)) for v in _state_of(w, w.integer(1, 2))]
    if any(v.is_float and v.bound > SIZE_LIMIT[v.dtype] for v in state):
        return None
    b = w.builder
    selector = w.of(w.choose((PRED, S32)), ())
    count = 2 if selector.dtype is PRED else w.integer(2, 3)
    branches, operands = [], []
    for number in range(count):
        inner, branch = nested_writer(w, f"branch_{number}")
        operand = b.tuple([v.hlo for v in state]) if w.chance(0.7) else state[0].hlo
        parameter = inner.builder.parameter(0, operand.shape, "operand")
        if isinstance(operand.shape, ArrayShape):
            inner.pool = [replace(state[0], hlo=parameter)]
        else:
            inner.pool = [
                replace(v, hlo=inner.builder.get_tuple_element(parameter, i))
                for i, v in enumerate(state)
            ]
        write_operations(inner, w.integer(0, 3))
        branch.root = inner.builder.tuple([_like(inner, v).hlo for v in state])
        branches.append(branch)
        operands.append(operand)
    result = b.conditional(selector.hlo, branches, operands)
    values = [w.keep(replace(v, hlo=b.get_tuple_element(result, i))) for i, v in enumerate(state)]
    return values[-1]


@operation(1, nested=False)
def call(w: Writer) -> Value | None:
    state = _state_of(w, w.integer(1, 3))
    inner, target = nested_writer(w, "function")
    inner.pool = [
        replace(v, hlo=inner.builder.parameter(i, ArrayShape(v.dtype, v.dims)))
        for i, v in enumerate(state)
    ]
    write_operations(inner, w.integer(1, 4))
    result = inner.pool[-1]
    target.root = result.hlo
    hlo = w.builder.call(target, [v.hlo for v in state])
    return w.keep(replace(result, hlo=hlo, bound=result.bound if result.is_float else math.inf))
