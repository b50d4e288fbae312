"""Shardy's text form of a sharding rule, as JAX attaches it to custom calls.

    #sdy.op_sharding_rule<([i, j, k])->([i, l, m], [i]) {i=8, j=6, k=6, l=6, m=6}, custom>
    #sdy.op_sharding_rule<([ij, k])->([i, jk]) {i=2, j=4, k=3} reduction={k} need_replication={j}>

Factors are the letters i to z, then z_1, z_2, ...; a dimension of several factors writes them side by side.
"""

from __future__ import annotations

import re

from partitioner.propagation.op_sharding_rule import (
    Factor,
    FactorKind,
    OpShardingRule,
    TensorMapping,
)
from spmd.device import ReductionKind
from spmd.errors import ShardingError
from spmd.lazy_dataclass import dataclass

_RULE = re.compile(
    r"^\s*(?:#sdy\.op_sharding_rule)?<\s*"
    r"\((?P<operands>[^()]*)\)\s*->\s*\((?P<results>[^()]*)\)\s*"
    r"\{(?P<sizes>[^{}]*)\}\s*(?P<rest>.*)>\s*$",
    re.DOTALL,
)
_TENSOR = re.compile(r"\[([^\[\]]*)\]")
_SYMBOL = re.compile(r"z_\d+|[a-z]")
_SIZE = re.compile(r"(z_\d+|[a-z])\s*=\s*(\d+)")
_SET = re.compile(
    r"(reduction|need_replication|permutation|blocked_propagation)\s*=\s*\{([^{}]*)\}"
)


@dataclass(frozen=True, slots=True)
class RuleText:
    """The parsed text: dimensions of each tensor as factor names, factor sizes, and the factors of each named set."""

    operands: tuple[tuple[tuple[str, ...], ...], ...]
    results: tuple[tuple[tuple[str, ...], ...], ...]
    sizes: dict[str, int]
    sets: dict[str, tuple[str, ...]]


def parse_rule_text(text: str) -> RuleText:
    """Parse a rule. Raises ShardingError for text that is no rule or names a factor without a size."""
    match = _RULE.match(text)
    if match is None:
        raise ShardingError(f"expected #sdy.op_sharding_rule<(...)->(...) {{...}}>, found {text!r}")
    sizes = {name: int(size) for name, size in _SIZE.findall(match["sizes"])}
    operands, results = _tensors(match["operands"]), _tensors(match["results"])
    for tensor in (*operands, *results):
        for name in (name for dim in tensor for name in dim):
            if name not in sizes:
                raise ShardingError(f"factor {name} of sharding rule {text!r} has no size")
    sets = {kind: tuple(_SYMBOL.findall(names)) for kind, names in _SET.findall(match["rest"])}
    return RuleText(operands, results, sizes, sets)


def rule_from_text(text: str) -> OpShardingRule:
    """Return the rule in the partitioner's form.

    A factor of a single tensor is not split (the call would not see that the rest is missing). Neither are permutation
    factors, whose values move between shards. Reductions are sums, Shardy's only kind.
    """
    rule = parse_rule_text(text)
    order = {name: index for index, name in enumerate(rule.sizes)}
    factors = tuple(_factor(rule, name) for name in order)

    def mapping(tensor: tuple[tuple[str, ...], ...]) -> TensorMapping:
        return tuple(tuple(order[name] for name in dim) for dim in tensor)

    return OpShardingRule(
        factors, tuple(map(mapping, rule.operands)), tuple(map(mapping, rule.results))
    )


def _factor(rule: RuleText, name: str) -> Factor:
    size = rule.sizes[name]
    in_operands = _count(rule.operands, name)
    in_results = _count(rule.results, name)
    if name in rule.sets.get("reduction", ()) and not in_results:
        return Factor(size, FactorKind.REDUCTION, ReductionKind.SUM)
    replicated = (*rule.sets.get("need_replication", ()), *rule.sets.get("permutation", ()))
    if name in replicated or in_operands == 0 or in_results == 0:
        return Factor(size, FactorKind.NEED_REPLICATION)
    return Factor(size, blocked=name in rule.sets.get("blocked_propagation", ()))


def _count(tensors: tuple[tuple[tuple[str, ...], ...], ...], name: str) -> int:
    return sum(1 for tensor in tensors if any(name in dim for dim in tensor))


def _tensors(text: str) -> tuple[tuple[tuple[str, ...], ...], ...]:
    return tuple(
        tuple(tuple(_SYMBOL.findall(dim)) for dim in tensor.split(",")) if tensor.strip() else ()
        for tensor in _TENSOR.findall(text)
    )
