"""Reference evaluator: computes the results of a module with NumPy.

outputs = evaluate(module, *arrays)                     unpartitioned
outputs = evaluate_partitions(module, [[..], [..]])     a per-device program, in lock step
value = evaluate_instruction(instruction, operands)     one instruction, for constant folding
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spmd.analysis.static_shapes import require_values
from spmd.errors import RunError
from spmd.evaluator import families
from spmd.evaluator.arguments import entry_arguments, output_arrays
from spmd.evaluator.device import Device
from spmd.evaluator.interpreter import run_computation, run_instruction
from spmd.evaluator.lockstep import evaluate_partitions
from spmd.evaluator.manual_mesh import differs_by_device
from spmd.evaluator.numerics import quiet
from spmd.evaluator.op_tables import REGISTERED, OpTables
from spmd.evaluator.registry import EVALUATORS
from spmd.evaluator.rendezvous import run_in_lockstep
from spmd.evaluator.session import Session
from spmd.evaluator.value import NDArray, PerDevice, Value
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.host_feed import HostFeed, Item, UnpartitionedFeed

__all__ = ["evaluate", "evaluate_instruction", "evaluate_partitions", "families"]


def evaluate(
    module: HloModule,
    *arrays: NDArray,
    tables: OpTables = REGISTERED,
    infeed: Iterable[Item] | HostFeed | None = None,
    outfeed: list[Item] | None = None,
) -> list[NDArray]:
    """Evaluate the program on global inputs (leaves of the entry parameters). Returns the outputs (leaves of the root).

    Sharding annotations change nothing; manual regions run on every device of their axes. Raises ShapeError for inputs
    that do not fit, UnsupportedError for operations that cannot be evaluated (elided constants, unknown custom calls),
    RunError for a program that is already per-device. ``tables``: the functions that evaluate opcodes.

    ``infeed``: an item (an array, or a tuple of items) for each infeed, in the order in which they run. The values of
    outfeeds are appended to ``outfeed``. Alternatively ``infeed`` is a HostFeed, which also takes the outfeeds.
    """
    require_values(module)
    feed = infeed if isinstance(infeed, HostFeed) else UnpartitionedFeed(infeed, outfeed)
    session = Session(module, tables, feed)
    logical = Device(0, 1, 1, session, is_logical=True)
    with quiet():
        steps = run_computation(module.entry, entry_arguments(module, arrays), logical)
        value = run_in_lockstep({0: steps})[0]
        if isinstance(value, PerDevice):
            raise RunError(
                f"{module.name} is a per-device program (its result differs between devices): use evaluate_partitions"
            )
        return output_arrays(module, value)


def evaluate_instruction(instruction: HloInstruction, operands: Sequence[Value]) -> Value:
    """Return the value of one instruction on operand values, callees included.

    Raises RunError if the value depends on the device: collectives, partition-id.
    """
    if differs_by_device(instruction):
        raise RunError(f"{instruction!r} has no value apart from its device")
    with quiet():
        evaluate_plainly = EVALUATORS.get(instruction.opcode)
        if evaluate_plainly is not None:
            return evaluate_plainly(instruction, tuple(operands))
        steps = run_instruction(instruction, tuple(operands), Device(0, 1, 1, Session(None)))
        return run_in_lockstep({0: steps})[0]
