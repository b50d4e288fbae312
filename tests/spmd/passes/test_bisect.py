"""A wrong rewrite that is planted in the middle of a pipeline is found and named."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from launch.checks.equivalence import EquivalenceCheck
from launch.cli import main
from spmd.builder import Builder
from spmd.hlo import HloInstruction, HloModule, Opcode, Stage
from spmd.passes.algebraic.rules import IDENTITIES
from spmd.passes.all_passes import SIMPLIFICATION
from spmd.passes.bisect import bisect
from spmd.passes.dead_code_elimination import DeadCodeElimination
from spmd.passes.interface import UNSCHEDULED, HloPass
from spmd.passes.options import parse_passes
from spmd.passes.pipeline import Pipeline
from spmd.text.parser import parse_module
from spmd.text.sources.load import load
from tests.paths import CASES
from tests.strategies import generate

PASSES = "algebraic-simplifier,constant-folding,dead-code-elimination"

PROGRAM = """HloModule victim
ENTRY e {
  a = f32[4,6] parameter(0)
  b = f32[4,6] parameter(1)
  zero = f32[] constant(0)
  zeros = f32[4,6] broadcast(zero), dimensions={}
  plain = f32[4,6] add(a, zeros)
  copied = f32[4,6] copy(plain)
  product = f32[4,6] multiply(copied, b)
  wrong = f32[4,6] maximum(product, b)
  twice = f32[4,6] negate(wrong)
  back = f32[4,6] negate(twice)
  pair = (f32[4,6], f32[4,6]) tuple(back, product)
  first = f32[4,6] get-tuple-element(pair), index=0
  ROOT r = (f32[4,6], f32[4,6]) tuple(first, copied)
}
"""


def maximum_is_minimum(x: HloInstruction, b: Builder) -> HloInstruction:
    """Wrong wherever the operands differ."""
    return b.minimum(*x.operands)


def difference_is_sum(x: HloInstruction, b: Builder) -> HloInstruction:
    return b.add(*x.operands)


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(IDENTITIES, Opcode.MAXIMUM, [maximum_is_minimum])


SIMPLIFY = Pipeline("simplification", SIMPLIFICATION, repeated=True)


@pytest.mark.usefixtures("planted")
def test_one_wrong_rewrite_among_right_ones() -> None:
    module = parse_module(PROGRAM)
    text = str(module)
    culprit = bisect(module, [SIMPLIFY], EquivalenceCheck())
    assert culprit is not None
    assert culprit.step.name == "algebraic-simplifier"
    assert culprit.rewrite is not None
    assert culprit.rewrite.total > culprit.rewrite.number > 1
    assert culprit.changes[0] == "- wrong = f32[4,6] maximum(product, b)"
    assert "out0" in culprit.problem
    assert [x.opcode for x in culprit.before.entry.instructions if x.num_operands] == [
        Opcode.MAXIMUM
    ]
    assert "minimum" in str(culprit.after)
    assert str(module) == text, "the module itself must stay as it is"


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    module = parse_module(PROGRAM)
    assert bisect(module, [SIMPLIFY], EquivalenceCheck()) is None


@dataclass(frozen=True)
class LosesMaximum(HloPass):
    """A wrong pass that cannot be stopped half-way."""

    name: ClassVar[str] = "loses-maximum"
    accepts: ClassVar[tuple[Stage, ...]] = UNSCHEDULED
    crashes: bool = False

    def run(self, module: HloModule) -> bool:
        found = next(iter(module.entry.with_opcode(Opcode.MAXIMUM)), None)
        if found is None:
            return False
        if self.crashes:
            module.entry.remove(found)  # VerificationError: it is used
        module.entry.replace(found, found.operand(0))
        return True


@pytest.mark.parametrize("crashes", [False, True])
def test_a_pass_without_fuel(crashes: bool) -> None:
    module = parse_module(PROGRAM)
    passes = (DeadCodeElimination(), LosesMaximum(crashes), DeadCodeElimination())
    culprit = bisect(module, [Pipeline("p", passes)], EquivalenceCheck())
    assert culprit is not None
    assert (culprit.step.name, culprit.number) == ("loses-maximum", 2)
    assert culprit.rewrite is None
    assert ("the pass fails" in culprit.problem) == crashes
    assert len(culprit.before.entry) <= 5


@pytest.mark.usefixtures("planted")
def test_random_programs() -> None:
    """The wrong rewrite is named wherever it changes a result."""
    found = 0
    for seed in range(60):
        module = generate(seed).module
        if Opcode.MAXIMUM not in {x.opcode for x in module.entry.instructions}:
            continue
        culprit = bisect(module, [Pipeline("p", parse_passes(PASSES))], EquivalenceCheck())
        if culprit is not None:
            found += 1
            assert any("maximum" in line for line in culprit.changes), culprit.changes
    assert found


@pytest.mark.usefixtures("planted")
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "victim.hlo"
    path.write_text(PROGRAM)
    passes = "tuple-simplifier,algebraic-simplifier,dead-code-elimination"
    command = ["opt", str(path), "--passes", passes, "--bisect", "--dump-to", str(tmp_path)]
    assert main(command) == 1
    out = capsys.readouterr().out
    assert "victim: algebraic-simplifier changes its results (application 2 of 3, " in out
    assert "  - wrong = f32[4,6] maximum(product, b)" in out
    before = load(tmp_path / "victim.bisect.before.hlo")
    after = load(tmp_path / "victim.bisect.after.hlo")
    assert EquivalenceCheck()(before, after)


def test_the_command_on_a_partitioned_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = str(tmp_path / "partitioned.hlo")
    case = str(CASES / "mlp_dp2" / "module.hlo")
    assert main(["partition", case, "--devices", "2", "-o", module]) == 0
    monkeypatch.setitem(IDENTITIES, Opcode.SUBTRACT, [difference_is_sum])
    command = ["opt", module, "--until", "optimized", "--bisect", "--dump-to", str(tmp_path)]
    assert main(command) == 1
    assert "subtract(" in capsys.readouterr().out


def test_the_command_where_nothing_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    module = str(CASES / "mlp_dp2" / "module.hlo")
    assert main(["opt", module, "--until", "optimized", "--bisect"]) == 0
    assert "no pass changes its results" in capsys.readouterr().out
    assert main(["opt", module, "--bisect"]) == 2
    assert "--bisect needs --passes" in capsys.readouterr().err
