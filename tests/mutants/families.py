"""Planted bugs in the rules of whole families: what must stay whole is split."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

from partitioner.ops import rule_text
from partitioner.propagation.op_sharding_rule import FactorKind, RuleBuilder
from partitioner.registry import SHARDING_RULES
from spmd.hlo import Opcode
from spmd.ops.attrs import RaggedDotAttrs
from spmd.passes.dynamic_padder import DynamicPadder
from tests.mutants.patching import entry, function, method, mutant


def _operand_passes(opcode: Opcode, operand: int = 0) -> AbstractContextManager[None]:
    """Every dimension that an operand shares with the result passes."""

    def rule(instruction: Any) -> Any:
        builder = RuleBuilder.for_instruction(instruction)
        shape, result = instruction.operand(operand).dims, instruction.dims
        for d, size in enumerate(result):
            if d < len(shape) and shape[d] == size:
                builder.factor(size, {operand: d}, {0: d})
        return builder.build()

    return entry(SHARDING_RULES, opcode, lambda _: rule)


@mutant("a transform runs over each tile", "fft")
def fft_within_tiles() -> AbstractContextManager[None]:
    return _operand_passes(Opcode.FFT)


@mutant("rows of a matrix are factored each by itself", "cholesky", first=1)
def cholesky_by_rows() -> AbstractContextManager[None]:
    def rule(instruction: Any) -> Any:
        builder = RuleBuilder.for_instruction(instruction)
        for d, size in enumerate(instruction.dims[:-1]):
            builder.factor(size, {0: d}, {0: d})
        return builder.build()

    return entry(SHARDING_RULES, Opcode.CHOLESKY, lambda _: rule)


@mutant("a triangular system is solved tile by tile of its unknowns", "triangular_solve")
def solved_by_tiles() -> AbstractContextManager[None]:
    return _operand_passes(Opcode.TRIANGULAR_SOLVE, 1)


@mutant("rows of a ragged product meet the groups by their place in the tile", "ragged_dot")
def ragged_rows_split() -> AbstractContextManager[None]:
    def wrap(rule: Any) -> Any:
        def wrong(dot: Any) -> Any:
            found = rule(dot)
            (ragged,) = dot.attrs_as(RaggedDotAttrs).lhs_ragged_dims
            (factor,) = found.operands[0][ragged]
            factors = list(found.factors)
            factors[factor] = replace(factors[factor], kind=FactorKind.PASS_THROUGH)
            result = (((factor,)), *found.results[0][1:])
            return replace(found, factors=tuple(factors), results=(result,))

        return wrong

    return entry(SHARDING_RULES, Opcode.RAGGED_DOT, wrap)


@mutant("random bits depend on an element's place in the tile", "random_bits")
def bits_by_tile() -> AbstractContextManager[None]:
    def rule(generator: Any) -> Any:
        builder = RuleBuilder.for_instruction(generator)
        bits = generator.shape.elements[1].dims
        builder.factor(
            generator.operand(0).dims[0], {0: 0}, {0: 0}, kind=FactorKind.NEED_REPLICATION
        )
        for d, size in enumerate(bits):
            builder.factor(size, {}, {1: d})
        return builder.build()

    return entry(SHARDING_RULES, Opcode.RNG_BIT_GENERATOR, lambda _: rule)


@mutant("statistics are those of each tile", "batch_norm")
def statistics_of_tiles() -> AbstractContextManager[None]:
    def rule(norm: Any) -> Any:
        builder = RuleBuilder.for_instruction(norm)
        for d, size in enumerate(norm.operand(0).dims):
            if d != norm.attrs.feature_index:
                builder.factor(size, {0: d}, {0: d})
        return builder.build()

    return entry(SHARDING_RULES, Opcode.BATCH_NORM_TRAINING, lambda _: rule)


@mutant("a custom call's rule is read without what it says must stay whole", "call_with_a_rule")
def rule_text_all_passes() -> AbstractContextManager[None]:
    original = rule_text._factor

    def factor(rule: Any, name: str) -> Any:
        found = original(rule, name)
        return replace(found, kind=FactorKind.PASS_THROUGH, reduction=None)

    return function(original, factor)


@mutant("the bytes of an element are split among devices", "bits_of")
def bytes_split() -> AbstractContextManager[None]:
    def rule(convert: Any) -> Any:
        builder = RuleBuilder.for_instruction(convert)
        for d, size in enumerate(convert.dims):
            has = d < len(convert.operand(0).dims)
            builder.factor(size, {0: d} if has else {}, {0: d})
        return builder.build()

    return entry(SHARDING_RULES, Opcode.BITCAST_CONVERT, lambda _: rule)


@mutant("a device answers with the size of its tile", "dimension_size")
@contextmanager
def size_of_the_tile() -> Iterator[None]:
    """Most sizes become constants before anything is partitioned: the planted rule is for those that do not."""

    def rule(size: Any) -> Any:
        builder = RuleBuilder.for_instruction(size)
        for d, n in enumerate(size.operand(0).dims):
            builder.factor(n, {0: d})
        return builder.build()

    stays = method(DynamicPadder, "run", lambda _pass, _module: False)
    with stays, entry(SHARDING_RULES, Opcode.GET_DIMENSION_SIZE, lambda _: rule):
        yield


@mutant("a window's gradient goes to the window of its own tile", "select_and_scatter")
def gradient_within_tiles() -> AbstractContextManager[None]:
    def rule(scatter: Any) -> Any:
        builder = RuleBuilder.for_instruction(scatter)
        source = scatter.operand(1).dims
        for d, size in enumerate(scatter.dims):
            if source[d] == size:
                builder.factor(size, {0: d, 1: d}, {0: d})
        return builder.build()

    return entry(SHARDING_RULES, Opcode.SELECT_AND_SCATTER, lambda _: rule)


@mutant("a scaled product's scales are split with their factor's elements", "scaled_dot")
def scales_left_out() -> AbstractContextManager[None]:
    def rule(dot: Any) -> Any:
        builder = RuleBuilder.for_instruction(dot)
        for operand in (0, 2):
            for d, n in enumerate(dot.operand(operand).dims[:1]):
                builder.factor(n, {operand: d}, {})
        for d, n in enumerate(dot.dims):
            builder.factor(n, {}, {0: d})
        return builder.build()

    return entry(SHARDING_RULES, Opcode.SCALED_DOT, lambda _: rule)
