"""Shrinking keeps the failure and little else."""

from __future__ import annotations

from pathlib import Path

import spmd
from spmd.hlo import HloModule, Opcode
from spmd.hlo.clone import clone_module
from spmd.passes.minimize import minimize
from tests.differential.fuzz import replay, write_fixture
from tests.strategies import generate


def has_a_dot(module: HloModule) -> bool:
    """A dot that the root depends on."""
    spmd.verify(module)
    live = clone_module(module)
    live.entry.remove_unused()
    return any(i.opcode is Opcode.DOT for i in live.entry.instructions)


def test_a_module_shrinks_to_what_fails() -> None:
    shrunk = 0
    for seed in range(40):
        module = generate(seed).module
        if not has_a_dot(module):
            continue
        before = str(module)
        small = minimize(module, has_a_dot)
        assert has_a_dot(small)
        assert len(small.entry) <= 10
        assert str(module) == before, "the module itself must stay as it is"
        shrunk += 1
    assert shrunk > 5


def test_a_fixture_is_read_again(tmp_path: Path) -> None:
    program = generate(3)
    found = "output 0: something\nelse"
    path = write_fixture(tmp_path, program, program.module, found, "optimized")
    assert replay(path) is None
    assert path.read_text(encoding="utf-8").startswith(
        f"// seed 3, {program.num_devices} devices, optimized\n// output 0"
    )
