"""Check a module against every rule of its stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from spmd.errors import VerificationError
from spmd.hlo.module import HloModule
from spmd.limits import MAX_ERRORS
from spmd.verifier.collectives import COLLECTIVE_RULES
from spmd.verifier.graph import GRAPH_RULES
from spmd.verifier.header import HEADER_RULES
from spmd.verifier.rule import Rule
from spmd.verifier.schedule import SCHEDULE_RULES
from spmd.verifier.shapes import ARRAY_RULES, SHAPE_RULES
from spmd.verifier.stages import STAGE_RULES

#: In this order: later groups rely on earlier ones (shapes are inferred only in a sound graph, of sound layouts).
RULE_GROUPS: tuple[tuple[Rule, ...], ...] = (
    GRAPH_RULES,
    ARRAY_RULES,
    SHAPE_RULES,
    (*COLLECTIVE_RULES, *STAGE_RULES, *SCHEDULE_RULES, *HEADER_RULES),
)
RULES: tuple[Rule, ...] = tuple(rule for group in RULE_GROUPS for rule in group)


def verify(module: HloModule) -> None:
    """Raise VerificationError with the violations (at most ``MAX_ERRORS``) of the first group of rules that has any.

    Each names its rule, the invariant in words, and the instruction.
    """
    for group in RULE_GROUPS:
        problems = list(islice(_problems(module, group), MAX_ERRORS))
        if problems:
            raise VerificationError(_message(module, problems), problems)


def _problems(module: HloModule, rules: Sequence[Rule]) -> Iterator[str]:
    """Yield the violations, each once even if two rules find it."""
    seen: set[str] = set()
    for rule in rules:
        for problem in rule.check(module):
            if problem not in seen:
                seen.add(problem)
                yield f"{rule.code} ({rule.statement}): {problem}"


def _message(module: HloModule, problems: Sequence[str]) -> str:
    if len(problems) == 1:
        return f"{module.name}: {problems[0]}"
    return "\n".join([f"{module.name}: {len(problems)} problems", *(f"  {p}" for p in problems)])
