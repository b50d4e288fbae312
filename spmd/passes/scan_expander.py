"""Write scans as loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from spmd.builder import Builder
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import ScanAttrs
from spmd.ops.checks import result_elements
from spmd.passes.fuel import Fuel
from spmd.passes.inline import inline
from spmd.passes.instruction_pass import OpExpander
from spmd.passes.interface import register_pass
from spmd.shape import ArrayShape, PrimitiveType, TupleShape, as_array

_S32 = PrimitiveType.S32


@register_pass
@dataclass(frozen=True)
class ScanExpander(OpExpander):
    """scan(inputs.., carries..), to_apply=f  =>  a while over (i, inputs.., outputs.., carries..), whose body

    slices each input at i, calls f on the slices and carries, and writes f's outputs at i; backwards from the last
    index if is_reverse. An associative scan, which may be done in any order, is done in this one.
    """

    name: ClassVar[str] = "scan-expander"
    opcodes: ClassVar[tuple[Opcode, ...]] = (Opcode.SCAN,)

    def expand(self, x: HloInstruction, b: Builder) -> HloInstruction:
        return _Scan.of(x).loop(b)

    def rewrite(self, module: HloModule, fuel: Fuel) -> bool:
        """Expand every scan. The new loops' computations are put before their callers."""
        changed = super().rewrite(module, fuel)
        if changed:
            module.computations = module.computations_post_order()
        return changed


@dataclass(frozen=True)
class _Scan:
    """The parts of a scan; ``outputs``: the shapes of the arrays that its slices are stacked to."""

    instruction: HloInstruction
    function: HloComputation
    attrs: ScanAttrs
    inputs: tuple[HloInstruction, ...]
    carries: tuple[HloInstruction, ...]
    outputs: tuple[ArrayShape, ...]
    length: int

    @staticmethod
    def of(x: HloInstruction) -> _Scan:
        attrs = x.attrs_as(ScanAttrs)
        scanned = x.num_operands - attrs.num_carries
        results = [as_array(shape) for shape in result_elements(x.shape)]
        outputs = tuple(results[: len(results) - attrs.num_carries])
        inputs = x.operands[:scanned]
        dims = inputs[0].dims if inputs else outputs[0].dims
        return _Scan(
            x, x.to_apply, attrs, inputs, x.operands[scanned:], outputs, dims[attrs.dimension]
        )

    def loop(self, b: Builder) -> HloInstruction:
        """Return the loop that replaces the scan."""
        empty = [b.full(shape.without_layout(), 0) for shape in self.outputs]
        if self.length == 0:
            return self._result(b, [*empty, *map(b.copy, self.carries)])
        state = b.tuple([b.scalar(_S32, 0), *self.inputs, *empty, *self.carries])
        looped = b.while_loop(state, self._condition(b, state), self._body(b, state))
        first = 1 + len(self.inputs)
        return self._result(
            b, [b.get_tuple_element(looped, i) for i in range(first, state.num_operands)]
        )

    def _result(self, b: Builder, parts: list[HloInstruction]) -> HloInstruction:
        return b.tuple(parts) if isinstance(self.instruction.shape, TupleShape) else parts[0]

    def _condition(self, b: Builder, state: HloInstruction) -> HloComputation:
        inside = self._computation(b, "condition")
        count = inside.get_tuple_element(inside.parameter(0, state.shape), 0)
        root = inside.compare(count, inside.scalar(_S32, self.length), "LT")
        inside.computation.root = root
        return inside.computation

    def _body(self, b: Builder, state: HloInstruction) -> HloComputation:
        inside = self._computation(b, "body")
        parameter = inside.parameter(0, state.shape)
        elements = [inside.get_tuple_element(parameter, i) for i in range(state.num_operands)]
        count, rest = elements[0], elements[1:]
        inputs, rest = rest[: len(self.inputs)], rest[len(self.inputs) :]
        outputs, carries = rest[: len(self.outputs)], rest[len(self.outputs) :]
        position = self._position(inside, count)
        slices = [self._slice(inside, x, position) for x in inputs]
        made = self._apply(inside, [*slices, *carries])
        stacked = [
            self._written(inside, stack, part, position)
            for stack, part in zip(outputs, made, strict=False)
        ]
        following = inside.add(count, inside.scalar(_S32, 1))
        inside.computation.root = inside.tuple(
            [following, *inputs, *stacked, *made[len(outputs) :]]
        )
        return inside.computation

    def _computation(self, b: Builder, part: str) -> Builder:
        made = b.within(b.scope.module.new_computation(f"{self.instruction.name}.{part}"))
        made.annotations = b.annotations
        return made

    def _position(self, b: Builder, count: HloInstruction) -> HloInstruction:
        if not self.attrs.is_reverse:
            return count
        return b.subtract(b.scalar(_S32, self.length - 1), count)

    def _apply(self, b: Builder, arguments: Sequence[HloInstruction]) -> list[HloInstruction]:
        """Call the scan's function. Returns its results one by one."""
        result = inline(self.function, arguments, b.computation).root
        if not isinstance(result.shape, TupleShape):
            return [result]
        count = len(result.shape.elements)
        return [b.get_tuple_element(result, i) for i in range(count)]

    def _slice(self, b: Builder, x: HloInstruction, position: HloInstruction) -> HloInstruction:
        sizes = [1 if d == self.attrs.dimension else n for d, n in enumerate(x.dims)]
        rest = [n for d, n in enumerate(x.dims) if d != self.attrs.dimension]
        return b.reshape(b.dynamic_slice(x, self._starts(b, x, position), sizes), rest)

    def _written(
        self, b: Builder, stack: HloInstruction, part: HloInstruction, position: HloInstruction
    ) -> HloInstruction:
        sizes = [1 if d == self.attrs.dimension else n for d, n in enumerate(stack.dims)]
        return b.dynamic_update_slice(
            stack, b.reshape(part, sizes), self._starts(b, stack, position)
        )

    def _starts(
        self, b: Builder, x: HloInstruction, position: HloInstruction
    ) -> list[HloInstruction]:
        zero = b.scalar(_S32, 0)
        return [position if d == self.attrs.dimension else zero for d in range(len(x.dims))]
