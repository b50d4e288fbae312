"""Every opcode is evaluated."""

from __future__ import annotations

import spmd.evaluator.families  # noqa: F401 - fills the registries
from spmd.evaluator.registry import EVALUATORS, IN_STEPS, ON_DEVICE
from spmd.hlo.opcode import Opcode


def test_every_opcode_is_evaluated():
    evaluated = {Opcode.PARAMETER, *EVALUATORS, *ON_DEVICE, *IN_STEPS}
    assert set(Opcode) == evaluated


def test_no_opcode_has_two_evaluators():
    together = [*EVALUATORS, *ON_DEVICE, *IN_STEPS]
    assert len(together) == len(set(together))
