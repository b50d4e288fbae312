"""Compilation of a program's Triton kernels for a GPU that need not be there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from runtime.executable import Executable
from runtime.gpu.command import traverse_commands
from runtime.gpu.commands.library_sequence import LibrarySequenceCommand
from runtime.gpu.commands.sequence import plan_commands
from runtime.gpu.libraries.sequence import CallStage
from runtime.gpu.libraries.triton_call import TritonCall
from runtime.gpu.options import GpuOptions
from runtime.gpu.planning import Planner, Views
from runtime.gpu.triton.compilation import compiled
from runtime.gpu.triton.kernel import TritonKernel
from runtime.gpu.triton.saved_code import code_key, cubin_bytes
from runtime.program.kernel import Kernel


def triton_code(
    executable: Executable, arch: str, options: GpuOptions
) -> dict[str, Callable[[], bytes]]:
    """Return the keys of all Triton kernels of ``executable``, and functions that return their code for ``arch``.

    The code is compiled here. options: those with which the program will run. Raises GpuLibraryError if Triton is not
    installed, or if it rejects a kernel.
    """
    code: dict[str, Callable[[], bytes]] = {}
    for device in range(executable.num_devices):
        for kernel in _kernels(executable, device, options):
            if (key := code_key(kernel)) not in code:
                code[key] = partial(bytes, cubin_bytes(compiled(kernel, arch)))
    return code


def _kernels(executable: Executable, device: int, options: GpuOptions) -> Iterator[TritonKernel]:
    """Yield the Triton kernels of ``device``. Devices may have arrays at different offsets."""
    program = executable.program
    planner = Planner(device, program.num_partitions, _no_ptx, options=options)
    for command in traverse_commands(plan_commands(program.thunks, planner)):
        if isinstance(command, LibrarySequenceCommand) and command.sequence is not None:
            for stage in command.sequence.stages:
                if isinstance(stage, CallStage) and isinstance(stage.call, TritonCall):
                    yield stage.call.launch


def _no_ptx(_: Kernel, __: Views, ___: Views, ____: Views) -> None:
    """Return None, so that kernels in PTX are not compiled. Triton's kernels do not depend on them."""
