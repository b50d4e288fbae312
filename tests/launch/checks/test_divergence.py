"""`spmd run --check` names the op that goes wrong first: planted bugs, and none in sound programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import launch.checks.divergence
import runtime.buffers.colocation
import spmd
from launch.checks.divergence import first_diverging_op, search
from launch.cli import main
from launch.data.inputs import Array, read_inputs, seeded_inputs
from launch.entry import Entry
from partitioner.partition.context import PartitionContext, ShardedValue
from runtime.compile import array_specs
from runtime.executable import Executable
from spmd.evaluator.evaluator import evaluate_instruction
from spmd.evaluator.value import Value
from spmd.hlo import HloInstruction
from tests.amplifying_programs import PROGRAMS
from tests.paths import CASES
from tests.runtime.programs import FIRST_VALUE_READS_STATE

STEP = CASES / "mlp_fsdp8"
UNEVEN_SUM = """
HloModule uneven_sum, num_partitions=2
plus {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
ENTRY main {
  x = f32[5,4] parameter(0), sharding={devices=[2,1]<=[2]}
  zero = f32[] constant(0)
  grown = f32[5,4] exponential(x)
  total = f32[4] reduce(grown, zero), dimensions={0}, to_apply=plus
  turned = f32[4] negate(total)
  copies = f32[5,4] broadcast(turned), dimensions={1}
  ROOT y = f32[5,4] multiply(copies, grown), sharding={devices=[2,1]<=[2]}
}
"""


@pytest.fixture
def no_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    """Padding of uneven tiles (exp(0) = 1 here) goes into every sum."""

    def mask_padding(
        _: PartitionContext, value: ShardedValue, dims: object, fill: object
    ) -> HloInstruction:
        return value.hlo

    monkeypatch.setattr(PartitionContext, "mask_padding", mask_padding)


def diverging(module: spmd.HloModule, devices: int, inputs: list[Array]) -> str | None:
    return first_diverging_op(module, devices, inputs, spmd.CompileOptions())


def test_a_sound_program_has_none() -> None:
    """A real training step, among whose values are sums over devices."""
    module = spmd.load(STEP / "module.hlo")
    assert (
        diverging(module, 8, read_inputs(STEP / "inputs.npz", Entry.of_module(module).inputs))
        is None
    )


def test_rounding_that_cancellation_brings_up_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Far above the tolerance of outputs: such values are what their operands' actual values give."""
    judged_by_operands: list[str] = []

    def evaluate(instruction: HloInstruction, operands: Sequence[Value]) -> Value:
        judged_by_operands.append(instruction.name)
        return evaluate_instruction(instruction, operands)

    monkeypatch.setattr(launch.checks.divergence, "evaluate_instruction", evaluate)
    adam = PROGRAMS["adam"]
    assert diverging(spmd.parse(adam.text), 2, list(adam.inputs)) is None
    assert {"noise", "sign", "step"} <= set(judged_by_operands)


@pytest.mark.parametrize("batch_bytes", [1, 64 << 20])
@pytest.mark.usefixtures("no_mask")
def test_a_planted_bug_is_named(batch_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One value in each run, or all in one: the sum, not what is computed from it."""
    monkeypatch.setattr(launch.checks.divergence, "BATCH_BYTES", batch_bytes)
    module = spmd.parse(UNEVEN_SUM)
    assert diverging(module, 2, seeded_inputs(0, Entry.of_module(module).inputs)) == "total"


@pytest.mark.usefixtures("no_mask")
def test_run_check_says_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.hlo"
    path.write_text(UNEVEN_SUM)
    assert main(["run", str(path), "--check", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["first_diverging_op"] == "total"
    assert main(["run", str(path), "--check"]) == 1
    assert "first diverging op: total" in capsys.readouterr().out


@pytest.mark.parametrize("flags", ["{true}", "{false}", "{true,false}"])
@pytest.mark.usefixtures("no_mask")
def test_the_flags_of_a_dumped_module_are_no_obstacle(flags: str) -> None:
    """XLA's dumps state a flag for each result, and the search adds results."""
    header = f"num_partitions=2, allow_spmd_sharding_propagation_to_output={flags}"
    text = UNEVEN_SUM.replace("num_partitions=2", header)
    if "," in flags:
        text = text.replace("ROOT y =", "y =").replace(
            "}\n}", "}\n  ROOT pair = (f32[5,4], f32[4]) tuple(y, total)\n}"
        )
    module = spmd.parse(text)
    assert diverging(module, 2, seeded_inputs(0, Entry.of_module(module).inputs)) == "total"


@pytest.mark.parametrize("error", [KeyError("x"), spmd.errors.RunError("no memory\nat all")])
@pytest.mark.usefixtures("no_mask")
def test_a_search_that_fails_does_not_cost_the_report(
    error: Exception,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(launch.checks.divergence, "first_diverging_op", fail)
    path = tmp_path / "m.hlo"
    path.write_text(UNEVEN_SUM)
    assert main(["run", str(path), "--check"]) == 1
    printed = capsys.readouterr().out
    assert "DIFFERS" in printed
    assert printed.count("the search for the first diverging op failed") == 1
    assert "at all" not in printed


def test_buffers_that_are_shared_too_early_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong numbers whose cause lies in no instruction."""
    path = tmp_path / "m.hlo"
    path.write_text(FIRST_VALUE_READS_STATE.replace("constant(2)", "constant(40)"))  # not unrolled
    assert main(["run", str(path), "--check"]) == 0
    monkeypatch.setattr(runtime.buffers.colocation, "_is_free_before", lambda *_: True)
    assert main(["run", str(path), "--check"]) == 1
    assert "buffer checker: first_value_reads_state" in capsys.readouterr().err


def test_a_kernel_that_errs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are run, not evaluated: a fault below the partitioner shows too."""
    original = Executable.run

    def run(self: Executable, *arrays: Array) -> list[Array]:
        return [np.where(out < 0, 0, out) for out in original(self, *arrays)]

    monkeypatch.setattr(Executable, "run", run)
    module = spmd.parse(UNEVEN_SUM)
    assert diverging(module, 2, seeded_inputs(0, Entry.of_module(module).inputs)) == "turned"


IN_A_LOOP = """
HloModule in_a_loop, num_partitions=2
plus {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
body {
  state = (s32[], f32[5,4]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  x = f32[5,4] get-tuple-element(state), index=1
  zero = f32[] constant(0)
  two = s32[] constant(2)
  grown = f32[5,4] cosine(x)
  total = f32[4] reduce(grown, zero), dimensions={0}, to_apply=plus
  late = pred[] compare(i, two), direction=GE
  all = pred[4] broadcast(late), dimensions={}
  none = f32[4] broadcast(zero), dimensions={}
  chosen = f32[4] select(all, total, none)
  copies = f32[5,4] broadcast(chosen), dimensions={1}
  y = f32[5,4] add(copies, x)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT next = (s32[], f32[5,4]) tuple(j, y)
}
more {
  state = (s32[], f32[5,4]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  n = s32[] constant(4)
  ROOT lt = pred[] compare(i, n), direction=LT
}
ENTRY main {
  x = f32[5,4] parameter(0), sharding={devices=[2,1]<=[2]}
  z = s32[] constant(0)
  start = (s32[], f32[5,4]) tuple(z, x)
  loop = (s32[], f32[5,4]) while(start), condition=more, body=body
  ROOT y = f32[5,4] get-tuple-element(loop), index=1, sharding={devices=[2,1]<=[2]}
}
"""
IN_A_BRANCH = """
HloModule in_a_branch, num_partitions=2
plus {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
right {
  x = f32[5,4] parameter(0)
  ROOT y = f32[5,4] negate(x)
}
wrong {
  x = f32[5,4] parameter(0)
  zero = f32[] constant(0)
  grown = f32[5,4] cosine(x)
  total = f32[4] reduce(grown, zero), dimensions={0}, to_apply=plus
  ROOT copies = f32[5,4] broadcast(total), dimensions={1}
}
ENTRY main {
  x = f32[5,4] parameter(0), sharding={devices=[2,1]<=[2]}
  which = s32[] parameter(1)
  ROOT y = f32[5,4] conditional(which, x, x), branch_computations={right, wrong}, sharding={devices=[2,1]<=[2]}
}
"""


@pytest.mark.usefixtures("no_mask")
def test_an_op_of_a_loop_is_named_with_its_trip() -> None:
    """The sum is wrong in every trip; the first two do not use it."""
    module = spmd.parse(IN_A_LOOP)
    found = diverging(module, 2, seeded_inputs(0, Entry.of_module(module).inputs))
    assert found is not None
    assert found.startswith("total in ")
    assert found.endswith(", trip 2 of loop")


@pytest.mark.usefixtures("no_mask")
@pytest.mark.parametrize(("which", "branch"), [(1, 1), (7, 1), (0, None)])
def test_an_op_of_a_branch_is_named(which: int, branch: int | None) -> None:
    module = spmd.parse(IN_A_BRANCH)
    (x, _) = seeded_inputs(0, Entry.of_module(module).inputs)
    found = diverging(module, 2, [x, np.array(which, np.int32)])
    if branch is None:
        assert found is None
    else:
        assert found is not None
        assert found.startswith("total in ")
        assert f", branch {branch} of y" in found


def test_a_program_of_one_device_is_searched_too(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Executable.run_devices

    def run_devices(self: Executable, per_device: list[list[Array]]) -> list[list[Array]]:
        outputs = original(self, per_device)
        return [outputs[0], [np.where(out < 0, 0, out) for out in outputs[1]]]

    module = spmd.partition(spmd.parse(UNEVEN_SUM), 2)
    inputs = seeded_inputs(0, [place.shape for place in array_specs(module)[0]])
    options = spmd.CompileOptions()
    found = search(module, 2, inputs, options, partitioned=True, seconds=60)
    assert found.op is None
    assert "no single op is wrong" in found.note
    monkeypatch.setattr(Executable, "run_devices", run_devices)
    found = search(module, 2, inputs, options, partitioned=True, seconds=60)
    assert found.op is not None
    assert found.op.endswith(" on device 1")


def test_the_search_ends_in_time() -> None:
    module = spmd.parse(UNEVEN_SUM)
    inputs = seeded_inputs(0, Entry.of_module(module).inputs)
    found = search(module, 2, inputs, spmd.CompileOptions(), partitioned=False, seconds=-1)
    assert found.op is None
    assert "--timeout" in found.note
