"""Rules in einsum notation, so that a test states what it expects in one line.

``einsum(rule)`` writes each tensor's factors as letters in the order of first use over operands, then results:
``ik,kj->ij k:sum``. A dimension of several factors is parenthesized; factors that stay whole are upper case; ``.`` is a
dimension of size 1 that no other tensor shares; ``i~`` is windowed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from string import ascii_lowercase

import partitioner.ops  # noqa: F401 - fills the registries
import spmd
from partitioner.propagation.op_sharding_rule import FactorKind, OpShardingRule, TensorMapping
from partitioner.registry import rule_of
from spmd.hlo import HloInstruction
from spmd.shape import ArrayShape, leaves


def root_of(text: str) -> HloInstruction:
    """The root of the entry (of the only computation, where the text has one)."""
    return spmd.parse(text).entry.root


def rule_text(text: str) -> str:
    """The rule of the root of ``text``; "none" where the op has none."""
    rule = rule_of(root_of(text))
    return "none" if rule is None else einsum(rule)


def einsum(rule: OpShardingRule) -> str:
    letters: dict[int, str] = {}
    operands = ",".join(_tensor(rule, m, letters) for m in rule.operands)
    results = ",".join(_tensor(rule, m, letters) for m in rule.results)
    reductions = " ".join(f"{letters[f][0]}:{kind}" for f, kind in _reductions(rule))
    once = f" once:{','.join(map(str, rule.identity_operands))}" if rule.identity_operands else ""
    return f"{operands}->{results}{' ' + reductions if reductions else ''}{once}"


def _reductions(rule: OpShardingRule) -> Iterator[tuple[int, str]]:
    for index, factor in enumerate(rule.factors):
        if factor.kind is FactorKind.REDUCTION and factor.reduction is not None:
            yield index, factor.reduction.value


def _tensor(rule: OpShardingRule, mapping: TensorMapping, letters: dict[int, str]) -> str:
    parts = []
    for dim in mapping:
        names = "".join(_letter(rule, factor, letters) for factor in dim)
        parts.append(names if len(dim) == 1 else f"({names})")
    return "".join(parts)


def _letter(rule: OpShardingRule, index: int, letters: dict[int, str]) -> str:
    factor = rule.factors[index]
    whole = factor.kind is FactorKind.NEED_REPLICATION
    if whole and factor.size == 1:
        return "."
    if index not in letters:
        letter = ascii_lowercase[len(letters)]
        letters[index] = letter.upper() if whole else letter + "~" * factor.windowed
    return letters[index]


def sizes_agree(instruction: HloInstruction, rule: OpShardingRule) -> bool:
    """R1 and R2: the factors of a dimension multiply to its size; none stands twice in a tensor."""
    shapes = [x.dims if isinstance(x.shape, ArrayShape) else () for x in instruction.operands]
    shapes += [s.dims for _, s in leaves(instruction.shape) if isinstance(s, ArrayShape)]
    for dims, mapping in zip(shapes, (*rule.operands, *rule.results), strict=True):
        flat = [f for parts in mapping for f in parts]
        if len(set(flat)) != len(flat):
            return False
        for size, parts in zip(dims, mapping, strict=True):
            factors = [rule.factors[f] for f in parts]
            product = math.prod(f.size for f in factors)
            windowed = len(factors) == 1 and factors[0].windowed
            if product != size and not (windowed and product <= size):
                return False
    return True
