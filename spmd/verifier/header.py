"""Rules of the module header: entry layout, aliases and donors agree with the entry computation."""

from __future__ import annotations

from collections.abc import Iterator

from spmd.errors import ShapeError
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.ops.checks import same_type, set_text
from spmd.shape import ArrayShape, Shape, ShapeIndex, TupleShape, subshape
from spmd.verifier.rule import Rule


def entry_layout_fits(module: HloModule) -> Iterator[str]:
    layout = module.entry_layout
    if layout is None:
        return
    found = [p.shape for p in module.entry.parameters]
    if len(found) != len(layout.parameters):
        yield f"it lists {len(layout.parameters)} parameters, the entry has {len(found)}"
        return
    for i, (stated, shape) in enumerate(zip(layout.parameters, found, strict=True)):
        if not same_type(stated, shape):
            yield f"parameter {i} is {shape}, stated as {stated}"
    if not same_type(layout.result, module.entry.root.shape):
        yield f"the result is {module.entry.root.shape}, stated as {layout.result}"


def _leaf(shape: Shape, index: ShapeIndex) -> Shape | None:
    """Return the part at ``index``, or None if there is none or it is a tuple."""
    try:
        part = subshape(shape, index)
    except (IndexError, ShapeError):
        return None
    return None if isinstance(part, TupleShape) else part


def _parameter_leaf(
    parameters: tuple[HloInstruction, ...], number: int, index: ShapeIndex
) -> Shape | None:
    return _leaf(parameters[number].shape, index) if 0 <= number < len(parameters) else None


def _fits_in_place(output: Shape, parameter: Shape) -> bool:
    """Return whether two arrays can share memory: they have equally many bytes, whatever their
    dimensions (XLA's rule).
    """
    if same_type(output, parameter):
        return True
    shapes = (output, parameter)
    if not all(isinstance(s, ArrayShape) and not s.is_unbounded for s in shapes):
        return False
    return output.byte_size == parameter.byte_size


def aliases_fit(module: HloModule) -> Iterator[str]:
    parameters, result = module.entry.parameters, module.entry.root.shape
    outputs: set[ShapeIndex] = set()
    inputs: set[tuple[int, ShapeIndex]] = set()
    for alias in module.input_output_alias:
        text = f"{set_text(alias.output_index)}: ({alias.parameter}, {set_text(alias.parameter_index)})"
        output = _leaf(result, alias.output_index)
        parameter = _parameter_leaf(parameters, alias.parameter, alias.parameter_index)
        if output is None or parameter is None:
            yield f"{text}: no such output or parameter"
        elif not _fits_in_place(output, parameter):
            yield f"{text}: the output is {output}, the parameter {parameter}"
        if alias.output_index in outputs or (alias.parameter, alias.parameter_index) in inputs:
            yield f"{text}: one of the two is aliased already"
        outputs.add(alias.output_index)
        inputs.add((alias.parameter, alias.parameter_index))


def donors_fit(module: HloModule) -> Iterator[str]:
    parameters = module.entry.parameters
    for donor in module.buffer_donors:
        if _parameter_leaf(parameters, donor.parameter, donor.parameter_index) is None:
            yield f"({donor.parameter}, {set_text(donor.parameter_index)}): no such parameter"


HEADER_RULES = (
    Rule("entry layout", "entry_computation_layout states the entry's shapes", entry_layout_fits),
    Rule("alias", "an aliased output and parameter exist once and have one size", aliases_fit),
    Rule("donor", "a donated parameter exists", donors_fit),
)
