"""First operation that goes wrong in a partitioned program whose results differ from its logical module's.

The prepared logical module is compiled again with values of its entry as further outputs, a batch of them at a time in
the order of the program, and its values are compared with the reference evaluator's. A further output adds no
annotation that binds others, so the program is partitioned as before; yet a fault that depends on fusion may not show.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from launch.checks.divergence_inside import find_inside, has_inside, source_of
from launch.checks.expect import Expected, Tolerance, check_output, default_tolerance
from launch.checks.reference import reference_program
from launch.data.feed_files import NO_FILES, FeedOptions
from launch.data.inputs import Array
from launch.options import CompileOptions
from launch.pipeline import compile_module
from launch.ranks.messages import one_line
from partitioner.prepare import prepare
from partitioner.propagate_module import propagate_module
from partitioner.propagation.propagation_flags import TO_OUTPUT, Allowed, output_flags
from runtime.executable import Executable
from spmd.builder import Builder
from spmd.errors import RunError
from spmd.evaluator.evaluator import evaluate, evaluate_instruction
from spmd.evaluator.lockstep import evaluate_partitions
from spmd.evaluator.manual_mesh import differs_by_device
from spmd.hlo import EntryLayout, HloInstruction, HloModule, Opcode
from spmd.hlo.clone import clone_module
from spmd.lazy_dataclass import dataclass
from spmd.shape import ArrayShape, TupleShape, as_array, leaves
from spmd.sharding import HloSharding, ShardingKind, SubgroupType

#: Bytes of global values that are compared in one run; every device holds all of them.
BATCH_BYTES = 64 << 20

#: Factor on the tolerance of intermediate values, which may differ by more than outputs: a value may be large and be
#: subtracted later.
SLACK = 16.0


@dataclass(frozen=True)
class Search:
    """Result of the search for the first instruction that goes wrong.

    Holds its name, or a line that says why none is named.
    """

    op: str | None = None
    note: str = ""


def search(
    module: HloModule,
    devices: int,
    inputs: Sequence[Array],
    options: CompileOptions,
    *,
    partitioned: bool,
    seconds: float,
    feeds: FeedOptions = NO_FILES,
) -> Search:
    """Look for the first instruction that goes wrong. A failure of the search itself becomes its note.

    `partitioned`: `module` is one device's program. No part of the search begins after `seconds`. `feeds`: files of
    what infeeds take.
    """
    limit = _Limit(time.monotonic() + seconds, seconds)
    try:
        if partitioned:
            op = first_diverging_op_per_device(module, devices, inputs, options, limit, feeds)
        else:
            op = first_diverging_op(module, devices, inputs, options, limit, feeds)
    except Exception as error:  # noqa: BLE001 - a failed search must not lose the report
        return Search(note=f"the search for the first diverging op failed: {one_line(error)}")
    if op is None:
        return Search(
            note="no single op is wrong: the result of each op for its operands is right up to rounding"
        )
    return Search(op)


@dataclass(frozen=True)
class _Limit:
    """A time (of time.monotonic) after which no further part of the search begins."""

    end: float = math.inf
    seconds: float = math.inf

    def require_time(self) -> None:
        """Raise RunError if the time limit is exceeded."""
        if time.monotonic() > self.end:
            raise RunError(f"it did not finish within {self.seconds:g} s (--timeout)")


_NO_LIMIT = _Limit()


def first_diverging_op(
    module: HloModule,
    devices: int,
    inputs: Sequence[Array],
    options: CompileOptions,
    limit: _Limit = _NO_LIMIT,
    feeds: FeedOptions = NO_FILES,
) -> str | None:
    """Return the first instruction of the prepared logical ``module`` whose value is wrong; None if there is none.

    A value is wrong if it differs from the reference, and from the result for its operands' actual values. If a loop or
    branch is wrong, the search continues inside. Values within manual regions have no global value and are left out.
    """
    logical = clone_module(module)
    prepare(logical)
    propagated = propagate_module(module, devices)
    undivided: list[HloInstruction] = []

    def find(inner: HloModule, arrays: Sequence[Array]) -> str | None:
        return first_diverging_op(inner, devices, arrays, options, limit)

    bodies: dict[HloModule, Executable] = {}

    def parts(body: HloModule, arrays: Sequence[Array], wanted: Sequence[Array]) -> bool:
        limit.require_time()
        if body not in bodies:
            bodies[body] = compile_module(body, devices, options)
        shapes = [as_array(shape) for _, shape in leaves(body.entry.root.shape)]
        found = bodies[body].run(*arrays)
        return not all(_agree(s, g, w, ()) for s, g, w in zip(shapes, found, wanted, strict=True))

    for instruction in _wrong_values(
        logical, _probes(logical, propagated), devices, inputs, options, limit, feeds
    ):
        source = source_of(instruction)
        if not has_inside(source):
            return instruction.name
        if source not in undivided:
            op = find_inside(source, logical, propagated, inputs, find, parts)
            if op is not None:
                return op
            undivided.append(source)
    return f"{undivided[0].name}, as a whole: no op inside it is wrong alone" if undivided else None


def _wrong_values(
    logical: HloModule,
    probes: Sequence[HloInstruction],
    devices: int,
    inputs: Sequence[Array],
    options: CompileOptions,
    limit: _Limit,
    feeds: FeedOptions,
) -> Iterator[HloInstruction]:
    """Yield the instructions among ``probes``, in their order, whose values are wrong."""
    known = {i.name for i in probes}
    for batch in _batches(probes):
        limit.require_time()
        operands = [o.name for i in batch for o in i.operands if o.name in known]
        names = list(dict.fromkeys([*operands, *(i.name for i in batch)]))
        probed = _with_outputs(logical, names)
        fed = feeds.reference(probed, partitioned=False)
        means = evaluate(probed, *inputs, infeed=fed)[-len(names) :]
        wanted = dict(zip(names, means, strict=True))
        executable = compile_module(probed, devices, options)
        with executable.feeding(feeds.source()):
            found = dict(zip(names, executable.run(*inputs)[-len(names) :], strict=True))
        for parameter, array in _array_parameters(logical, inputs):
            found[parameter.name] = array
        for instruction in batch:
            if _is_wrong(instruction, wanted[instruction.name], found):
                yield instruction


def first_diverging_op_per_device(
    module: HloModule,
    devices: int,
    inputs: Sequence[Array],
    options: CompileOptions,
    limit: _Limit = _NO_LIMIT,
    feeds: FeedOptions = NO_FILES,
) -> str | None:
    """Return the first instruction of one device's program that is wrong on any device; None if there is none.

    A loop or branch counts as one instruction.
    """
    reference = reference_program(module, devices, partitioned=True)
    tiles = reference.tiles(inputs)
    program = reference.module
    # Tiles are compared without resharding. The root becomes an ordinary value, and these have no shardings.
    program.entry.root.sharding = None
    probes = _probes(program, program)
    known = {i.name for i in probes}
    for batch in _batches(probes):
        limit.require_time()
        operands = [o.name for i in batch for o in i.operands if o.name in known]
        names = list(dict.fromkeys([*operands, *(i.name for i in batch)]))
        probed = _with_outputs(program, names)
        fed = feeds.reference(probed, partitioned=True)
        wanted = evaluate_partitions(probed, tiles, feed=fed)
        executable = compile_module(probed, devices, replace(options, partitioned=True))
        with executable.feeding(feeds.source()):
            found = executable.run_devices(tiles)
        for instruction in batch:
            at = len(wanted[0]) - len(names) + names.index(instruction.name)
            for device in range(len(tiles)):
                own = dict(zip(names, found[device][-len(names) :], strict=True))
                own |= {p.name: x for p, x in _array_parameters(program, tiles[device])}
                if _is_wrong(instruction, wanted[device][at], own):
                    return f"{instruction.name} on device {device}"
    return None


def _is_wrong(instruction: HloInstruction, wanted: Array, found: Mapping[str, Array]) -> bool:
    """Return whether the value differs for another reason than its operands' rounding errors, amplified by
    cancellation.
    """
    got = found[instruction.name]
    if _agree(as_array(instruction.shape), got, wanted, ()):
        return False
    operands: list[Array] = []
    for operand in instruction.operands:
        if operand.opcode is Opcode.CONSTANT:
            value = evaluate_instruction(operand, ())
        elif operand.name in found:
            value = found[operand.name]
        else:
            return True
        if not isinstance(value, np.ndarray):
            return True
        operands.append(value)
    if not operands or differs_by_device(instruction):
        return True
    given = evaluate_instruction(instruction, operands)
    return not isinstance(given, np.ndarray) or not _agree(
        as_array(instruction.shape), got, given, operands
    )


def _agree(shape: ArrayShape, got: Array, want: Array, operands: Sequence[Array]) -> bool:
    """Return whether the values agree within ``SLACK`` times the tolerance of outputs, or the largest operand's unit in
    the last place.
    """
    limits = [default_tolerance(shape.element_type, want)]
    limits += [
        default_tolerance(shape.element_type, operand)
        for operand in operands
        if operand.dtype == want.dtype
    ]
    tolerance = Tolerance(SLACK * max(one.atol for one in limits), SLACK * limits[0].rtol)
    return check_output(got, Expected("", shape, want, tolerance)).ok


def _array_parameters(
    logical: HloModule, inputs: Sequence[Array]
) -> list[tuple[HloInstruction, Array]]:
    """Return the entry parameters with their values; an empty list if some are tuples."""
    parameters = logical.entry.parameters
    if any(not isinstance(p.shape, ArrayShape) for p in parameters):
        return []
    return list(zip(parameters, inputs, strict=True))


def _probes(logical: HloModule, propagated: HloModule) -> list[HloInstruction]:
    """Return the computed array values of the entry outside manual regions, in program order."""
    manual = {i.name for i in propagated.entry.instructions if _is_manual(i.sharding)}
    given = (Opcode.PARAMETER, Opcode.CONSTANT)
    return [
        instruction
        for instruction in logical.entry.post_order()
        if isinstance(instruction.shape, ArrayShape)
        and instruction.opcode not in given
        and instruction.name not in manual
    ]


def _is_manual(sharding: HloSharding | None) -> bool:
    return sharding is not None and (
        sharding.kind is ShardingKind.MANUAL or SubgroupType.MANUAL in sharding.subgroup_types
    )


def _batches(probes: Sequence[HloInstruction]) -> Iterator[list[HloInstruction]]:
    """Yield ``probes`` in order, as many at a time as fit ``BATCH_BYTES``, at least one."""
    batch: list[HloInstruction] = []
    size = 0
    for probe in probes:
        if batch and size + probe.shape.byte_size > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(probe)
        size += probe.shape.byte_size
    if batch:
        yield batch


def _with_outputs(logical: HloModule, names: Sequence[str]) -> HloModule:
    """Return a copy of ``logical`` that returns its result's leaves and the named values of its entry."""
    probed = clone_module(logical)
    entry = probed.entry
    by_name = {instruction.name: instruction for instruction in entry.instructions}
    b = Builder(entry)
    old = entry.root
    parts = [_leaf(b, old, index) for index, _ in leaves(old.shape)]
    root = b.tuple([*parts, *(by_name[name] for name in names)])
    if old.sharding is not None:
        bound = old.sharding.leaf_shardings(old.shape)
        root.sharding = HloSharding.tuple_of((*bound, *(HloSharding.replicated() for _ in names)))
    probed.extra_header = _extended_flags(probed, len(names))
    entry.root = root
    probed.input_output_alias = ()
    if probed.entry_layout is not None:
        probed.entry_layout = EntryLayout(probed.entry_layout.parameters, root.shape)
    return probed


def _extended_flags(module: HloModule, further: int) -> tuple[tuple[str, str], ...]:
    """Return the header of `module` with flags for `further` outputs, which may be sharded as they are computed."""
    flags = [flag is Allowed.YES for flag in output_flags(module)] + [True] * further
    text = ",".join("true" if flag else "false" for flag in flags)
    return tuple(
        (name, "{" + text + "}" if name == TO_OUTPUT else said)
        for name, said in module.extra_header
    )


def _leaf(b: Builder, value: HloInstruction, index: tuple[int, ...]) -> HloInstruction:
    for number in index:
        is_tuple = value.opcode is Opcode.TUPLE and isinstance(value.shape, TupleShape)
        value = value.operands[number] if is_tuple else b.get_tuple_element(value, number)
    return value
