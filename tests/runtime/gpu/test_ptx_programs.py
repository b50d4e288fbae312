"""Programs whose kernels are really made into PTX: what is planned, and how programs are divided between forms."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime.gpu.codegen.ptx_module import ptx_text
from runtime.gpu.command import traverse_commands
from runtime.gpu.commands.kernel import GeneratedKernelCommand
from runtime.gpu.engine import GpuEngine
from runtime.gpu.launch_maker import launch_maker
from spmd.evaluator.evaluator import evaluate
from tests.runtime.compiled_cases import compiled_case
from tests.runtime.gpu.doubles.engines import devices_of
from tests.runtime.gpu.doubles.host_driver import HostDriver
from tests.runtime.programs import ALIASING, assert_same, compiled, module_of, random_inputs


@pytest.mark.parametrize("name", ALIASING)
def test_one_device(name: str) -> None:
    executable = compiled(ALIASING[name])
    executable.engine = GpuEngine(lambda _: HostDriver(), launch_maker)
    for seed in (0, 1, 2):
        inputs = random_inputs(executable.module, seed)
        assert_same(executable.run(*inputs), evaluate(module_of(ALIASING[name]), *inputs))


def test_a_training_step_has_ptx(cases: Path) -> None:
    executable = compiled_case(cases / "gpt_dp2tp2").executable()
    executable.engine = GpuEngine(lambda _: HostDriver(), launch_maker)
    devices = devices_of(executable).devices
    commands = [
        command
        for command in traverse_commands(devices[0].plan)
        if isinstance(command, GeneratedKernelCommand)
    ]
    assert commands
    for command in commands:
        for launch in command.launches:
            assert f".entry {launch.entry}(" in ptx_text(launch.ir, "sm_90")
    entries = {launch.ir: launch.entry for command in commands for launch in command.launches}
    assert len(set(entries.values())) == len(entries)  # profilers can tell them apart
    assert any(
        "exponential" in entry and entry.startswith("spmd_rows") for entry in entries.values()
    )
