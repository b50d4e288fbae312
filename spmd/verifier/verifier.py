"""Check a module against every rule of its stage."""

from __future__ import annotations

from spmd.errors import VerificationError
from spmd.hlo.module import HloModule
from spmd.verifier.collectives import COLLECTIVE_RULES
from spmd.verifier.graph import GRAPH_RULES
from spmd.verifier.header import HEADER_RULES
from spmd.verifier.rule import Rule
from spmd.verifier.schedule import SCHEDULE_RULES
from spmd.verifier.shapes import SHAPE_RULES
from spmd.verifier.stages import STAGE_RULES

#: In this order: later rules rely on earlier ones (shapes are inferred only in a sound graph).
RULES: tuple[Rule, ...] = (
    *GRAPH_RULES,
    *SHAPE_RULES,
    *COLLECTIVE_RULES,
    *STAGE_RULES,
    *SCHEDULE_RULES,
    *HEADER_RULES,
)


def verify(module: HloModule) -> None:
    """VerificationError at the first rule that does not hold, naming the rule and the instruction."""
    for rule in RULES:
        for problem in rule.check(module):
            raise VerificationError(f"{module.name}: {rule.code} ({rule.statement}): {problem}")
