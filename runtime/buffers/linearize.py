"""From a scheduled module to a Program: walk instructions in order, following views, calls and control flow."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

import numpy as np

from runtime.buffers.forwarding import carried_leaves
from runtime.buffers.program import (
    Branch,
    Carried,
    ConditionalStep,
    CopyStep,
    DoneStep,
    OutputLeaf,
    Program,
    Read,
    Region,
    Step,
    Tree,
    Value,
    ValueView,
    WhileStep,
    subtree,
    tree_leaves,
)
from runtime.buffers.view_ops import VIEW_RULES
from runtime.lowering import LOWERINGS
from runtime.strides import StridedView
from spmd.errors import UnsupportedError, VerificationError
from spmd.hlo import HloComputation, HloInstruction, HloModule, Opcode, Stage
from spmd.ops.attrs import ConstantAttrs, IotaAttrs, ParameterAttrs, TupleIndexAttrs
from spmd.registry import Registry
from spmd.shape import ArrayShape, Shape, ShapeIndex, TupleShape, leaves

#: Where a start's result tuple holds the collective's result.
_RESULT_OF_START: dict[Opcode, ShapeIndex] = {
    Opcode.ALL_REDUCE_START: (),
    Opcode.ALL_GATHER_START: (1,),
    Opcode.COLLECTIVE_PERMUTE_START: (1,),
    Opcode.ASYNC_START: (1,),
}
_DONE = frozenset(
    {
        Opcode.ALL_REDUCE_DONE,
        Opcode.ALL_GATHER_DONE,
        Opcode.COLLECTIVE_PERMUTE_DONE,
        Opcode.ASYNC_DONE,
    }
)

Environment = dict[HloInstruction, Tree]


@dataclass
class Linearizer:
    """State of one walk. ``position`` is the next free one."""

    module: HloModule
    values: list[Value] = field(default_factory=list)
    starts: dict[HloInstruction, Step] = field(default_factory=dict)
    position: int = 0

    # ---- positions, values, reads
    def next_position(self) -> int:
        self.position += 1
        return self.position - 1

    def new_value(self, name: str, shape: ArrayShape, region: Region, start: int) -> Value:
        value = Value(len(self.values), name, shape.without_layout(), region, start)
        self.values.append(value)
        return value

    def whole(self, value: Value) -> ValueView:
        return ValueView(value, StridedView.dense(value.shape))

    def read(self, step: Step, views: tuple[ValueView, ...], position: int, region: Region) -> None:
        for number, view in enumerate(views):
            view.value.reads.append(Read(step, number, view, position, region))

    # ---- regions
    def open_region(self, name: str, parent: Region | None) -> Region:
        return Region(name, parent, self.next_position())

    def close_region(self, region: Region) -> None:
        region.end = self.next_position()

    def run_computation(
        self, computation: HloComputation, arguments: tuple[Tree, ...], region: Region
    ) -> Tree:
        """Walk ``computation`` within ``region``; the tree of its root."""
        env: Environment = {}
        for instruction in computation.instructions:
            if instruction.opcode is Opcode.PARAMETER:
                env[instruction] = arguments[instruction.attrs_as(ParameterAttrs).number]
            else:
                env[instruction] = self.visit(instruction, env, region)
        return env[computation.root]

    def visit(self, instruction: HloInstruction, env: Environment, region: Region) -> Tree:
        operands = tuple(env[operand] for operand in instruction.operands)
        special = VISITORS.get(instruction.opcode)
        if special is not None:
            return special(self, instruction, operands, region)
        rule = VIEW_RULES.get(instruction.opcode)
        if rule is not None and isinstance(source := operands[0], ValueView):
            view = rule(instruction, source.view)
            if view is not None:
                return ValueView(source.value, view)
        return self.add_step(instruction, operands, region)

    # ---- steps
    def add_step(
        self, instruction: HloInstruction, operands: tuple[Tree, ...], region: Region
    ) -> Tree:
        """An ordinary instruction: reads its operands' leaves, writes a new value per result leaf."""
        lowering = LOWERINGS.get(instruction.opcode)
        if lowering is None:
            raise UnsupportedError(
                f"{instruction!r}: the runtime does not run {instruction.opcode}"
            )
        views = tuple(leaf for operand in operands for leaf in tree_leaves(operand))
        layouts = lowering.layouts(instruction, tuple(v.view for v in views))
        views = tuple(
            self.lay_out(instruction, i, view, layouts[i], region) if i in layouts else view
            for i, view in enumerate(views)
        )
        step = Step(instruction, self.next_position(), region, views)
        region.steps.append(step)
        self.read(step, views, step.position, region)
        step.scratch = tuple(
            self.new_value(f"{instruction.name}.scratch", shape, region, step.position)
            for shape in lowering.scratch(instruction, tuple(v.view for v in views))
        )
        tree = self.new_results(step, instruction.shape)
        step.results = tuple(leaf.value for leaf in tree_leaves(tree))
        return tree

    def new_results(self, step: Step, shape: Shape, index: ShapeIndex = ()) -> Tree:
        if isinstance(shape, TupleShape):
            return tuple(
                self.new_results(step, element, (*index, i))
                for i, element in enumerate(shape.elements)
            )
        if not isinstance(shape, ArrayShape):
            return None
        name = leaf_name(step.instruction.name, index)
        return self.whole(self.new_value(name, shape, step.region, step.position))

    def lay_out(
        self,
        instruction: HloInstruction,
        operand: int,
        view: ValueView,
        order: tuple[int, ...],
        region: Region,
    ) -> ValueView:
        """A copy of ``view`` without gaps, dimension ``order[0]`` slowest."""
        step = CopyStep(
            instruction,
            self.next_position(),
            region,
            (view,),
            layout=order,
            operand_number=operand,
        )
        region.steps.append(step)
        self.read(step, step.operands, step.position, region)
        shape = ArrayShape(view.view.element_type, view.view.dims)
        value = self.new_value(f"{instruction.name}.operand{operand}", shape, region, step.position)
        step.results = (value,)
        return ValueView(value, StridedView.dense_in_order(shape, order))

    def own_copy(
        self,
        instruction: HloInstruction,
        leaf: int,
        view: ValueView,
        places: Collection[Value],
        region: Region,
    ) -> ValueView:
        """``view``, copied if it shows one of ``places``: these are all overwritten where the region ends.

        So copies there read nothing that another one has written (think of a loop that swaps two leaves).
        """
        if view.value not in places:
            return view
        order = tuple(range(len(view.view.dims)))
        return self.lay_out(instruction, leaf, view, order, region)


def leaf_name(name: str, index: ShapeIndex) -> str:
    return f"{name}{{{','.join(map(str, index))}}}" if index else name


# ---- instructions that are not ordinary steps
Visitor = Callable[[Linearizer, HloInstruction, tuple[Tree, ...], Region], Tree]
VISITORS: Registry[Opcode, Visitor] = Registry("linearizer")


@VISITORS.register(Opcode.TUPLE)
def visit_tuple(_: Linearizer, __: HloInstruction, operands: tuple[Tree, ...], ___: Region) -> Tree:
    return operands


@VISITORS.register(Opcode.GET_TUPLE_ELEMENT)
def visit_get_tuple_element(
    _: Linearizer, instruction: HloInstruction, operands: tuple[Tree, ...], __: Region
) -> Tree:
    return subtree(operands[0], (instruction.attrs_as(TupleIndexAttrs).index,))


@VISITORS.register(Opcode.OPT_BARRIER)
def visit_opt_barrier(
    _: Linearizer, __: HloInstruction, operands: tuple[Tree, ...], ___: Region
) -> Tree:
    return operands[0] if len(operands) == 1 else operands


@VISITORS.register(Opcode.AFTER_ALL)
def visit_token(_: Linearizer, __: HloInstruction, ___: tuple[Tree, ...], ____: Region) -> Tree:
    return None


@VISITORS.register(Opcode.CONSTANT)
def visit_constant(
    linearizer: Linearizer, instruction: HloInstruction, _: tuple[Tree, ...], region: Region
) -> Tree:
    """A constant lives outside of time: in an allocation that is filled when the program is loaded."""
    literal = instruction.attrs_as(ConstantAttrs).literal
    if literal is None:
        raise UnsupportedError(f"{instruction!r}: an elided constant has no value to run with")
    if literal.array is None:
        raise UnsupportedError(f"{instruction!r}: the runtime takes array constants only")
    return constant_view(linearizer, instruction, literal.array, region)


@VISITORS.register(Opcode.IOTA)
def visit_iota(
    linearizer: Linearizer, instruction: HloInstruction, _: tuple[Tree, ...], region: Region
) -> Tree:
    """Numbers along one dimension are a small constant; the other dimensions repeat it."""
    shape = instruction.array_shape
    dimension = instruction.attrs_as(IotaAttrs).dimension
    size = shape.dims[dimension]
    wide = np.complex128 if shape.element_type.is_complex else np.int64
    numbers = np.arange(size).astype(wide).astype(shape.element_type.numpy)
    line = constant_view(linearizer, instruction, numbers, region)
    return ValueView(line.value, line.view.broadcast(shape.dims, (dimension,)))


def constant_view(
    linearizer: Linearizer, instruction: HloInstruction, array: np.ndarray, region: Region
) -> ValueView:
    """A splat is stored as one element."""
    shape = ArrayShape(instruction.array_shape.element_type, array.shape)
    is_splat = array.size > 1 and bool((_bits(array) == _bits(array)[:1]).all())
    stored = array.reshape(-1)[:1].reshape(()) if is_splat else array
    value = linearizer.new_value(
        instruction.name, ArrayShape(shape.element_type, stored.shape), region, 0
    )
    value.constant = stored
    view = StridedView.dense(value.shape)
    return ValueView(value, view.broadcast(shape.dims, ()) if is_splat else view)


def _bits(array: np.ndarray) -> np.ndarray:
    """Elements as rows of bytes, so that nan equals nan and 0.0 differs from -0.0."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(np.uint8).reshape(flat.size, flat.dtype.itemsize)


@VISITORS.register(Opcode.CALL)
def visit_call(
    linearizer: Linearizer, instruction: HloInstruction, operands: tuple[Tree, ...], region: Region
) -> Tree:
    """The callee's steps stand where the call stood."""
    return linearizer.run_computation(instruction.to_apply, operands, region)


@VISITORS.register(*_DONE)
def visit_done(
    linearizer: Linearizer, instruction: HloInstruction, operands: tuple[Tree, ...], region: Region
) -> Tree:
    """Wait for a start: until here its operands may not be written, nor its results touched."""
    source = instruction.operand(0)
    start = linearizer.starts.get(source)
    if start is None:
        raise VerificationError(f"{instruction!r} waits for what is no start of a collective")
    tree = subtree(operands[0], _RESULT_OF_START[source.opcode])
    views = (*start.operands, *tree_leaves(tree))
    step = DoneStep(instruction, linearizer.next_position(), region, views, start=start)
    region.steps.append(step)
    linearizer.read(step, views, step.position, region)
    return tree


@VISITORS.register(*_RESULT_OF_START)
def visit_start(
    linearizer: Linearizer, instruction: HloInstruction, operands: tuple[Tree, ...], region: Region
) -> Tree:
    """(operands, results, ...) where the start has a tuple of both, else the results."""
    index = _RESULT_OF_START[instruction.opcode]
    step_tree = linearizer.add_step(instruction, operands, region)
    step = region.steps[-1]
    linearizer.starts[instruction] = step
    if not index:
        return step_tree
    results = subtree(step_tree, index)
    kept = {leaf.value for leaf in tree_leaves(results)}
    linearizer.values = [v for v in linearizer.values if v in kept or v not in step.results]
    step.results = tuple(v for v in step.results if v in kept)
    first = operands[0] if len(operands) == 1 else operands
    assert isinstance(step_tree, tuple)
    return (first, *step_tree[1:])


@VISITORS.register(Opcode.WHILE)
def visit_while(
    linearizer: Linearizer, instruction: HloInstruction, operands: tuple[Tree, ...], region: Region
) -> Tree:
    """Leaves that every trip passes on unchanged are views of what came in; the others get a place of their own."""
    (state,) = operands
    inits = tree_leaves(state)
    changed = carried_leaves(instruction)
    step = WhileStep(instruction, linearizer.next_position(), region)
    region.steps.append(step)
    names = [index for index, shape in leaves(instruction.shape) if isinstance(shape, ArrayShape)]
    places = list(inits)
    for leaf in changed:
        init = inits[leaf]
        shape = ArrayShape(init.view.element_type, init.view.dims)
        name = leaf_name(instruction.name, names[leaf])
        value = linearizer.new_value(name, shape, region, step.position)
        places[leaf] = linearizer.whole(value)
        step.carried.append(Carried(leaf, value, init, init))
    step.operands = tuple(c.init for c in step.carried)
    step.results = tuple(c.value for c in step.carried)
    linearizer.read(step, step.operands, step.position, region)
    tree = rebuild(instruction.shape, iter(places))

    step.condition = linearizer.open_region(instruction.while_condition.name, region)
    predicate = linearizer.run_computation(instruction.while_condition, (tree,), step.condition)
    assert isinstance(predicate, ValueView)
    step.predicate = predicate
    linearizer.close_region(step.condition)
    linearizer.read(step, (predicate,), step.condition.end, step.condition)

    step.body = linearizer.open_region(instruction.while_body.name, region)
    roots = tree_leaves(linearizer.run_computation(instruction.while_body, (tree,), step.body))
    places_of_loop = {c.value for c in step.carried}
    for carried in step.carried:
        root = roots[carried.leaf]
        carried.root = linearizer.own_copy(
            instruction, carried.leaf, root, places_of_loop, step.body
        )
    linearizer.close_region(step.body)
    linearizer.read(step, tuple(c.root for c in step.carried), step.body.end, step.body)
    step.end = linearizer.next_position()
    step.condition.loop_end = step.body.loop_end = step.end
    return tree


@VISITORS.register(Opcode.CONDITIONAL)
def visit_conditional(
    linearizer: Linearizer, instruction: HloInstruction, operands: tuple[Tree, ...], region: Region
) -> Tree:
    selector, *arguments = operands
    assert isinstance(selector, ValueView)
    step = ConditionalStep(instruction, linearizer.next_position(), region, (selector,))
    region.steps.append(step)
    linearizer.read(step, step.operands, step.position, region)
    tree = linearizer.new_results(step, instruction.shape)
    step.results = tuple(leaf.value for leaf in tree_leaves(tree))
    for computation, argument in zip(instruction.called_computations, arguments, strict=True):
        branch = linearizer.open_region(computation.name, region)
        roots = tuple(tree_leaves(linearizer.run_computation(computation, (argument,), branch)))
        linearizer.close_region(branch)
        linearizer.read(step, roots, branch.end, branch)
        step.branches.append(Branch(branch, roots))
    return tree


def rebuild(shape: Shape, views: Iterator[ValueView]) -> Tree:
    """The tree of ``shape`` made of the next views, one per array leaf."""
    if isinstance(shape, TupleShape):
        return tuple(rebuild(element, views) for element in shape.elements)
    return next(views) if isinstance(shape, ArrayShape) else None


def linearize(module: HloModule) -> Program:
    """The program of a SCHEDULED module. UnsupportedError for an opcode that the runtime does not run."""
    if module.stage < Stage.SCHEDULED:
        raise VerificationError(
            f"{module.name} is {module.stage.name}, buffers are assigned to SCHEDULED modules"
        )
    linearizer = Linearizer(module)
    entry = linearizer.open_region(module.entry.name, None)
    parameters: list[Value] = []
    arguments: list[Tree] = []
    for parameter in module.entry.parameters:
        arguments.append(_entry_parameter(linearizer, parameter, entry, parameters))
    roots = tree_leaves(linearizer.run_computation(module.entry, tuple(arguments), entry))
    aliases = output_aliases(module)
    overwritten = {parameters[p] for o, p in aliases.items()}
    outputs = []
    for number, root in enumerate(roots):
        aliased = aliases.get(number)
        in_place = aliased is not None and root.value is parameters[aliased] and root.is_whole
        view = (
            root
            if in_place
            else linearizer.own_copy(module.entry.root, number, root, overwritten, entry)
        )
        outputs.append(OutputLeaf(number, view, aliased))
    linearizer.close_region(entry)
    step = Step(module.entry.root, entry.end, entry)
    linearizer.read(step, tuple(o.view for o in outputs), entry.end, entry)
    return Program(entry, linearizer.values, parameters, outputs)


def _entry_parameter(
    linearizer: Linearizer, parameter: HloInstruction, entry: Region, found: list[Value]
) -> Tree:
    views = []
    for index, shape in leaves(parameter.shape):
        if isinstance(shape, ArrayShape):
            value = linearizer.new_value(leaf_name(parameter.name, index), shape, entry, 0)
            value.parameter = len(found)
            found.append(value)
            views.append(linearizer.whole(value))
    return rebuild(parameter.shape, iter(views))


def output_aliases(module: HloModule) -> dict[int, int]:
    """{output leaf: parameter leaf} where the caller lets both share a buffer and the sizes agree."""
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
