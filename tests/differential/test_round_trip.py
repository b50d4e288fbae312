"""parse(print(m)) prints the same and computes the same, for random logical modules and their partitioned forms."""

from __future__ import annotations

import pytest

import spmd
from tests.differential.tiling import same_bits
from tests.strategies import generate

SEEDS = 100


@pytest.mark.parametrize("start", range(0, SEEDS, 25))
def test_logical_and_partitioned_text(start: int) -> None:
    for seed in range(start, start + 25):
        program = generate(seed)
        for module in (program.module, spmd.partition(program.module, program.num_devices)):
            text = str(module)
            assert str(spmd.parse(text)) == text, f"seed {seed}"


def test_what_was_read_computes_the_same() -> None:
    for seed in range(30):
        program = generate(seed)
        inputs = program.inputs()
        again = spmd.parse(str(program.module))
        for a, b in zip(
            spmd.evaluate(program.module, *inputs), spmd.evaluate(again, *inputs), strict=True
        ):
            assert same_bits(a, b), f"seed {seed}"
