"""Every opcode is evaluated or refused by name, on purpose."""

from __future__ import annotations

from spmd.evaluator import families
from spmd.evaluator.registry import EVALUATORS, IN_STEPS, ON_DEVICE
from spmd.hlo.opcode import Opcode

#: The host's side of a program: read and partitioned, not evaluated.
REFUSED = {Opcode.INFEED, Opcode.OUTFEED}


def test_every_opcode_is_evaluated_or_refused():
    assert families.FAMILIES
    evaluated = {Opcode.PARAMETER, *EVALUATORS, *ON_DEVICE, *IN_STEPS}
    assert set(Opcode) - evaluated == REFUSED


def test_no_opcode_has_two_evaluators():
    together = [*EVALUATORS, *ON_DEVICE, *IN_STEPS]
    assert len(together) == len(set(together))
