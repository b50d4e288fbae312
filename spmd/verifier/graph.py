"""Rules of the graph: links, ownership, names, order of computations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from spmd.errors import VerificationError
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import ParameterAttrs
from spmd.ops.inference import describe
from spmd.verifier.rule import Check, Rule


def each_computation(check: Callable[[HloComputation], Iterator[str]]) -> Check:
    def over_module(module: HloModule) -> Iterator[str]:
        for computation in module.computations:
            yield from check(computation)

    return over_module


def users_match_operands(module: HloModule) -> Iterator[str]:
    used_by: dict[HloInstruction, set[HloInstruction]] = {}
    for user in module.all_instructions():
        for operand in user.operands:
            used_by.setdefault(operand, set()).add(user)
    for x in module.all_instructions():
        if set(x.users) != used_by.get(x, set()):
            names = ", ".join(user.name for user in x.users)
            yield f"users of {x.name} are recorded as [{names}], which does not match the operand lists: {describe(x)}"


def neighbours_share_computation(computation: HloComputation) -> Iterator[str]:
    for x in computation.instructions:
        for other in (*x.operands, *x.users):
            if other.parent is not computation:
                yield f"{other.name} lies outside {computation.name}: {describe(x)}"


def control_edges_match(computation: HloComputation) -> Iterator[str]:
    instructions = computation.instructions
    neighbours = [n for x in instructions for n in (*x.control_predecessors, *x.control_successors)]
    listed = dict.fromkeys((*instructions, *neighbours))
    successors = {x: set(x.control_successors) for x in listed}
    predecessors = {x: set(x.control_predecessors) for x in listed}
    for x in instructions:
        for before in x.control_predecessors:
            if x not in successors[before]:
                yield f"{before.name} does not list its control successor: {describe(x)}"
        for after in x.control_successors:
            if x not in predecessors[after]:
                yield f"{after.name} does not list its control predecessor: {describe(x)}"


def parents_match(module: HloModule) -> Iterator[str]:
    for computation in module.computations:
        if computation.module is not module:
            yield f"computation {computation.name} belongs to another module"
        for x in computation.instructions:
            if x.parent is not computation:
                where = x.parent.name if x.parent is not None else "no computation"
                yield f"{x.name} stands in {computation.name} but says {where}: {describe(x)}"


def root_is_inside(computation: HloComputation) -> Iterator[str]:
    if all(x is not computation.root for x in computation.instructions):
        yield f"the root {computation.root.name} is not an instruction of {computation.name}"


def parameters_are_numbered(computation: HloComputation) -> Iterator[str]:
    found = [x for x in computation.instructions if x.opcode is Opcode.PARAMETER]
    numbers = sorted(x.attrs_as(ParameterAttrs).number for x in found)
    if numbers != list(range(len(found))) or len(computation.parameters) != len(found):
        yield f"parameters of {computation.name} are numbered {numbers}"


def is_acyclic(computation: HloComputation) -> Iterator[str]:
    try:
        computation.post_order()
    except VerificationError as error:
        yield str(error)


def callees_stand_before(module: HloModule) -> Iterator[str]:
    position = {id(computation): i for i, computation in enumerate(module.computations)}
    for i, computation in enumerate(module.computations):
        for x in computation.instructions:
            for callee in x.called_computations:
                if id(callee) not in position:
                    yield f"{callee.name} is not in the module: {describe(x)}"
                elif position[id(callee)] >= i:
                    yield f"{callee.name} stands after its caller {computation.name}: {describe(x)}"


def _repeated(names: Iterable[str]) -> Iterator[str]:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            yield name
        seen.add(name)


def instruction_names_are_unique(module: HloModule) -> Iterator[str]:
    instructions: list[HloInstruction] = list(module.all_instructions())
    for name in _repeated(x.name for x in instructions):
        texts = "; ".join(describe(x) for x in instructions if x.name == name)
        yield f"{name!r} names several instructions: {texts}"


def names_are_unique(module: HloModule) -> Iterator[str]:
    yield from instruction_names_are_unique(module)
    for name in _repeated(computation.name for computation in module.computations):
        yield f"{name!r} names several computations"


def entry_is_listed(module: HloModule) -> Iterator[str]:
    if all(computation is not module.entry for computation in module.computations):
        yield f"the entry {module.entry.name} is not listed"


GRAPH_RULES = (
    Rule("M3", "the entry is one of the computations", entry_is_listed),
    Rule("C1", "every instruction's parent is this computation", parents_match),
    Rule("C2", "the root is one of the instructions", each_computation(root_is_inside)),
    Rule("I1", "x in y.operands <=> y in x.users", users_match_operands),
    Rule(
        "I2",
        "operands and users lie in the same computation",
        each_computation(neighbours_share_computation),
    ),
    Rule("I3", "the name is unique in the module", instruction_names_are_unique),
    Rule(
        "I5",
        "a control predecessor p of x has x among its control successors",
        each_computation(control_edges_match),
    ),
    Rule(
        "C3",
        "parameters are numbered 0..n-1 without gaps",
        each_computation(parameters_are_numbered),
    ),
    Rule(
        "C4", "the graph of operands and control edges has no cycle", each_computation(is_acyclic)
    ),
    Rule(
        "M1",
        "every called computation belongs to the module and stands before its callers in ``computations``",
        callees_stand_before,
    ),
    Rule("M2", "instruction names are unique, and so are computation names", names_are_unique),
)
