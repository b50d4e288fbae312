"""I4: every instruction's shape and attributes fit its op definition; layouts are permutations."""

from __future__ import annotations

import math
from collections.abc import Iterator

from spmd.errors import VerificationError
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.limits import MAX_SIZE
from spmd.ops import check_instruction
from spmd.ops.inference import describe
from spmd.shape import UNBOUNDED, ArrayShape, BufferShape, Shape, leaves
from spmd.verifier.rule import Rule


def instructions_fit_their_definitions(module: HloModule) -> Iterator[str]:
    for instruction in module.all_instructions():
        try:
            check_instruction(instruction)
        except VerificationError as error:
            yield str(error)


def _of_each_shape(module: HloModule) -> Iterator[HloInstruction]:
    """Yield one instruction for each shape object: several may share one."""
    seen: set[int] = set()
    for instruction in module.all_instructions():
        if id(instruction.shape) not in seen:
            seen.add(id(instruction.shape))
            yield instruction


def layouts_are_permutations(module: HloModule) -> Iterator[str]:
    for instruction in _of_each_shape(module):
        for problem in _layout_problems(instruction.shape):
            yield f"{problem}: {describe(instruction)}"
    if module.entry_layout is not None:
        for shape in (*module.entry_layout.parameters, module.entry_layout.result):
            for problem in _layout_problems(shape):
                yield f"{problem}: entry_computation_layout"


def _layout_problems(shape: Shape) -> Iterator[str]:
    for _, leaf in leaves(shape):
        array = leaf.array if isinstance(leaf, BufferShape) else leaf
        if not isinstance(array, ArrayShape) or array.layout is None:
            continue
        order = array.layout.minor_to_major
        if sorted(order) != list(range(array.rank)):
            text = ",".join(map(str, order))
            yield f"the layout {{{text}}} of {array} is not a permutation of {array.rank} dimensions"


def arrays_have_a_size(module: HloModule) -> Iterator[str]:
    """Yield arrays that are too large. An unbounded dimension has no size, which is no violation."""
    for instruction in _of_each_shape(module):
        for _, leaf in leaves(instruction.shape):
            array = leaf.array if isinstance(leaf, BufferShape) else leaf
            if isinstance(array, ArrayShape) and _bytes_of(array) > MAX_SIZE:
                yield f"{array} has {_bytes_of(array):,} bytes: {describe(instruction)}"


def _bytes_of(array: ArrayShape) -> int:
    """Return the bytes of the bounded dimensions of `array`: 0 if one of them is empty."""
    sized = [size for size in array.dims if size != UNBOUNDED]
    return math.prod(sized) * array.element_type.byte_size


ARRAY_RULES = (
    Rule("size", "an array has at most 2^63 - 1 bytes", arrays_have_a_size),
    Rule("layout", "a layout is a permutation of the dimensions", layouts_are_permutations),
)
SHAPE_RULES = (
    Rule(
        "I4",
        "shape equals the shape inferred from opcode, operands and attributes (up to layout)",
        instructions_fit_their_definitions,
    ),
)
