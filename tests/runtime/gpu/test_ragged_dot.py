"""Ragged products as kernels of a GPU: what is planned for them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from runtime.gpu.command import Command
from runtime.gpu.commands.kernel import HostedCommand, LibraryCommand
from runtime.gpu.commands.library_sequence import LibrarySequenceCommand
from runtime.gpu.commands.sequence import plan_commands
from runtime.gpu.launch_maker import launch_maker
from runtime.gpu.options import DEFAULT, GpuOptions
from runtime.gpu.planning import Planner
from runtime.gpu.report import KernelReport
from tests.runtime.gpu.doubles.host_driver import HostDriver
from tests.runtime.gpu.product_epilogues import compiled_for_gpu
from tests.runtime.gpu.ragged_programs import GRADIENTS
from tests.runtime.gpu.triton.ragged import CASES, of_rows


def planned(text: str, options: GpuOptions = DEFAULT) -> Sequence[Command]:
    planner = Planner(0, 1, launch_maker(HostDriver()), options=options)
    return plan_commands(compiled_for_gpu(text).program.thunks, planner)


def kinds_of_commands(text: str, options: GpuOptions = DEFAULT) -> list[type]:
    commands = planned(text, options)
    for command in commands:
        if isinstance(command, LibrarySequenceCommand):
            assert command.sequence is not None
            assert command.sequence.can_be_captured
            assert command.sequence.workspace_bytes == 0
    return [type(command) for command in commands]


@pytest.mark.parametrize("name", CASES)
def test_a_product_is_one_call_that_a_graph_may_contain(name: str) -> None:
    assert kinds_of_commands(CASES[name].text) == [LibrarySequenceCommand]


def test_nothing_of_jaxs_gradients_is_left_to_the_host() -> None:
    report = KernelReport.of(planned(GRADIENTS))
    assert report.library == 3
    assert report.hosted == ()


def test_groups_of_a_batch_dimension_are_a_plain_product() -> None:
    text = """HloModule ragged
ENTRY main {
  x = f32[64,32,16] parameter(0)
  y = f32[64,16,24] parameter(1)
  s = s32[4] parameter(2)
  ROOT r = f32[64,32,24] ragged-dot(x, y, s), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}, lhs_ragged_dims={0}
}
"""
    assert kinds_of_commands(text) == [LibraryCommand]


def test_without_triton_the_host_computes_them() -> None:
    text = CASES["rows"].text
    assert kinds_of_commands(text, GpuOptions(triton=False)) == [HostedCommand]


def test_types_without_a_kernel_are_left_to_the_host() -> None:
    text = of_rows([4, 4], 8, 8, 8, kinds=("s32",) * 3, precision="").text
    assert kinds_of_commands(text) == [HostedCommand]
