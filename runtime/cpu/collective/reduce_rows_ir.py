"""LLVM IR of the action that reduces rows of n arrays, in this order, into each of m others (``ReduceRows``).

*At once*, for few arrays: a loop over elements loads one of each source, combines them in the accumulator's type, and
stores the result in every target. *In blocks*, for more arrays than the number of streams that a core prefetches:
within a block that stays in the L1 cache the sources are accumulated one after the other, and the last sum goes to the
first target and is copied to the others.

In either algorithm the first source, and all targets, may be a *prefix*, a partial reduction in the accumulator's type.
An element of a target may have the address of the same element of any source, because it is written after all sources
were read.
"""

from __future__ import annotations

from collections.abc import Sequence

from collectives.communicator.actions.engine import RunStatus
from collectives.communicator.group import accumulator_type
from runtime.codegen.elements.builder import Int, Value
from runtime.codegen.ir.combine import Dtype, Element, combining_ir, element_of
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.internal_function import internal_function
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.values import Pointer
from runtime.cpu.collective.action_records import Prefixes, ReduceRowsRecord, Streams
from runtime.cpu.collective.shared_memory_ir import action_function
from spmd.device import ReductionKind
from spmd.lazy_dataclass import dataclass

#: Number of elements of a block. Four sources and their sum fit in an L1 cache several times.
BLOCK_ELEMENTS = 1024


def reduce_rows_ir(
    name: str,
    dtype: Dtype,
    reduction: ReductionKind,
    streams: Streams | None,
    prefixes: Prefixes,
) -> str:
    """Return a module with the action function ``name``, which runs a ReduceRowsRecord."""
    element = element_of(dtype)
    module = Module(*combining_ir(dtype, reduction))
    if streams:
        _at_once(module, name, element, streams, prefixes)
    else:
        wide = accumulator_type(dtype).itemsize // element.parts
        sizes = {"stored": dtype.itemsize // element.parts, "wide": wide}
        _in_blocks(module, name, element, sizes, prefixes)
    return module.text()


#: Number of vectors of a target that are computed concurrently. The code is as fast as that of LLVM's vectorizer, and
#: is made in a third of the time.
_SIDE_BY_SIDE = 4


# ---- loops over elements
@dataclass(frozen=True, slots=True)
class _Arrays:
    """Arrays of a loop over ``n`` elements, which computes in[0][i] op in[1][i] op ... for each target."""

    f: FunctionWriter
    element: Element
    sources: Sequence[Pointer]
    targets: Sequence[Pointer]
    n: Int

    def total(self, values: Sequence[Value]) -> Value:
        """Return the reduction of ``values``, which have the accumulator's type."""
        total = values[0]
        for value in values[1:]:
            total = self.f.call(self.element.wide, "combine", total, value)
        return total

    def widened(self, stored: Value) -> Value:
        wide: Value = self.f.call(self.element.wide, "widen", stored)
        return wide

    def narrowed(self, wide: Value) -> Value:
        stored: Value = self.f.call(self.element.stored, "narrow", wide)
        return stored


def _loop_function(
    module: Module, name: str, element: Element, sources: int, targets: int
) -> _Arrays:
    """Return the arrays of a new function ``name``(sources.., targets.., n)."""
    f = internal_function(module, name, *["ptr"] * (sources + targets), "i64")
    *arrays, n = f.parameters
    return _Arrays(f, element, arrays[:sources], arrays[sources:], n)


def _add_combine(
    module: Module,
    name: str,
    element: Element,
    inputs: Sequence[str],
    output: str,
    targets: int = 1,
) -> None:
    """Add the function that reduces arrays of elements in the ``stored`` type or in the accumulator's, ``wide``."""
    arrays = _loop_function(module, name, element, len(inputs), targets)
    types = {"stored": element.stored, "wide": element.wide}
    with arrays.f.vector_loop(arrays.n, _SIDE_BY_SIDE) as i:
        values = []
        for source, precision in zip(arrays.sources, inputs, strict=True):
            value = source.element(types[precision], i).load(types[precision])
            values.append(arrays.widened(value) if precision == "stored" else value)
        total = arrays.total(values)
        if output == "stored":
            total = arrays.narrowed(total)
        for target in arrays.targets:
            target.element(types[output], i).store(total)
    arrays.f.finish()


def _at_once(
    module: Module, name: str, element: Element, streams: Streams, prefixes: Prefixes
) -> None:
    inputs = prefixes.inputs(streams.sources)
    _add_combine(module, "reduce_elements", element, inputs, prefixes.output, streams.targets)
    f = action_function(module, name, ReduceRowsRecord)
    rec = f.record
    sources, targets, elements = rec.sources, rec.targets, rec.elements
    with f.loop(rec.rows) as r:
        source_row, target_row = r * rec.source_stride, r * rec.target_stride
        arrays = [sources.pointer(k).at(source_row) for k in range(streams.sources)]
        arrays += [targets.pointer(k).at(target_row) for k in range(streams.targets)]
        f.call("void", "reduce_elements", *arrays, elements)
    f.ret(RunStatus.COMPLETE)
    f.finish()


def _in_blocks(
    module: Module, name: str, element: Element, sizes: dict[str, int], prefixes: Prefixes
) -> None:
    """Write the action in blocks. ``sizes`` gives the bytes of a number as stored and in the accumulator's type."""
    begin = prefixes.inputs(2)
    _add_combine(module, "combine_first", element, begin, "wide")
    _add_combine(module, "combine_middle", element, ["wide", "stored"], "wide")
    _add_combine(module, "combine_last", element, ["wide", "stored"], prefixes.output)
    f = action_function(module, name, ReduceRowsRecord)
    rec = f.record
    total = f.array(BLOCK_ELEMENTS, element.wide)
    sources, targets, last = rec.sources, rec.targets, rec.source_count - 1
    with f.loop(rec.rows) as r:
        source_row, target_row = r * rec.source_stride, r * rec.target_stride
        with f.blocks(rec.elements, BLOCK_ELEMENTS, {}) as (first, n, _):
            source_way = source_row + first * sizes["stored"]
            target_way = target_row + first * sizes[prefixes.output]
            prefix = sources.pointer(0).at(source_row + first * sizes[begin[0]])
            second = sources.pointer(1).at(source_way)
            f.call("void", "combine_first", prefix, second, total, n)
            with f.loop(last, first=2, nonempty=False) as k:
                source = sources.pointer(k).at(source_way)
                f.call("void", "combine_middle", total, source, total, n)
            target, source = targets.pointer(0).at(target_way), sources.pointer(last).at(source_way)
            f.call("void", "combine_last", total, source, target, n)
            with f.loop(rec.target_count, first=1, nonempty=False) as t:
                f.memcpy(targets.pointer(t).at(target_way), target, n * sizes[prefixes.output])
    f.ret(RunStatus.COMPLETE)
    f.finish()
