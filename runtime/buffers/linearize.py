"""Linearization of a scheduled module to a Program: a traversal in order, through views, calls and control flow."""

from __future__ import annotations

from runtime.buffers import visit_async, visit_control_flow, visit_values  # noqa: F401 - fill the registry
from runtime.buffers.linearizer import Linearizer, leaf_name, rebuild
from runtime.buffers.program import (
    OutputLeaf,
    Program,
    Region,
    ScheduledOp,
    Tree,
    Value,
    tree_leaves,
)
from runtime.lowering import Device
from spmd.errors import VerificationError
from spmd.hlo import HloInstruction, HloModule, Stage
from spmd.ops.attrs import ParameterAttrs
from spmd.shape import ArrayShape, ShapeIndex, leaves


def linearize(module: HloModule) -> Program:
    """Return the program of a SCHEDULED module.

    Raises VerificationError if the module is not scheduled, and UnsupportedError if the runtime does not run an opcode.
    """
    if module.stage < Stage.SCHEDULED:
        raise VerificationError(
            f"{module.name} is {module.stage.name}, buffers are assigned to SCHEDULED modules"
        )
    linearizer = Linearizer()
    entry = linearizer.open_region(module.entry.name, None)
    parameters: list[Value] = []
    arguments: list[Tree] = []
    for parameter in module.entry.parameters:
        arguments.append(_entry_parameter(linearizer, parameter, entry, parameters))
    roots = tree_leaves(linearizer.run_computation(module.entry, tuple(arguments), entry))
    aliases = {
        o: p
        for o, p in output_aliases(module).items()
        if roots[o].value.memory_space == parameters[p].memory_space
    }
    overwritten = {parameters[p] for o, p in aliases.items()}
    outputs = []
    for number, root in enumerate(roots):
        aliased = aliases.get(number)
        in_place = aliased is not None and root.value is parameters[aliased] and root.is_entire
        view = (
            root
            if in_place
            else linearizer.own_copy(module.entry.root, number, root, overwritten, entry)
        )
        outputs.append(OutputLeaf(number, view, aliased))
    linearizer.close_region(entry)
    op = ScheduledOp(module.entry.root, entry.end, entry)
    linearizer.read(op, tuple(o.view for o in outputs), entry.end, entry)
    device = Device(module.num_partitions, module.replica_count)
    return Program(entry, linearizer.values, parameters, outputs, device)


def _entry_parameter(
    linearizer: Linearizer, parameter: HloInstruction, entry: Region, found: list[Value]
) -> Tree:
    """Return the tree of an entry parameter, and append a value for each of its array leaves to ``found``."""
    views = []
    for index, shape in leaves(parameter.shape):
        if isinstance(shape, ArrayShape):
            name = leaf_name(parameter.name, index)
            value = linearizer.new_value(name, shape, entry, 0, shape.memory_space)
            value.parameter = len(found)
            found.append(value)
            views.append(linearizer.full_view(value))
    return rebuild(parameter.shape, iter(views))


def output_aliases(module: HloModule) -> dict[int, int]:
    """Return {output leaf: parameter leaf} for the input-output aliases of ``module`` whose sizes agree."""
    parameter_leaves: dict[tuple[int, ShapeIndex], tuple[int, ArrayShape]] = {}
    for parameter in module.entry.parameters:
        number = parameter.attrs_as(ParameterAttrs).number
        for index, shape in leaves(parameter.shape):
            if isinstance(shape, ArrayShape):
                parameter_leaves[(number, index)] = (len(parameter_leaves), shape)
    arrays = [(i, s) for i, s in leaves(module.entry.root.shape) if isinstance(s, ArrayShape)]
    output_leaves = {index: (n, shape) for n, (index, shape) in enumerate(arrays)}
    result: dict[int, int] = {}
    for alias in module.input_output_alias:
        output = output_leaves.get(alias.output_index)
        parameter_leaf = parameter_leaves.get((alias.parameter, alias.parameter_index))
        if output is None or parameter_leaf is None:
            continue
        if output[1].byte_size == parameter_leaf[1].byte_size:
            result[output[0]] = parameter_leaf[0]
    return result
