"""Import of all modules that compiling and loading may need, for callers that measure these and not imports."""

from __future__ import annotations

import launch.cache.compile_afresh
import launch.cli.programs.compiled_module  # noqa: F401 - for the time that it takes
import runtime.codegen.llvm.ir_compiler
import runtime.cpu.collective.in_place_ir
import runtime.cpu.collective.messages_ir
import runtime.cpu.collective.reduce_rows_ir
import runtime.cpu.kernels.copy.slice_offset_ir
import runtime.cpu.kernels.gather_scatter.gather_scatter_ir
import runtime.cpu.kernels.gemm.blas_call_ir
import runtime.cpu.kernels.gemm.converted_dot
import runtime.cpu.kernels.gemm.thin_dot_ir
import runtime.cpu.kernels.gemm.tile_dot
import runtime.cpu.kernels.loop.loop_ir
import runtime.cpu.kernels.repeat_ir
import runtime.cpu.kernels.rows.rows_ir
import runtime.cpu.prediction.step
import runtime.cpu.sharing.cut_kernels
import runtime.cpu.step.barrier_ir
import runtime.cpu.step.prepare_host
import runtime.cpu.step.thread_team_ir  # noqa: F401
from runtime.codegen.elements.complex_arithmetic import COMPLEX_FUNCTIONS
from runtime.codegen.elements.registry import BODIES, FLOAT_FUNCTIONS
from runtime.lowering import LOWERINGS
from runtime.program.kernel import CPU_KERNELS
from spmd.ops.opdef import OPS
from spmd.proto.attrs_proto import ATTRS_PROTO


def import_before_timing() -> None:
    """Import what a program's families of operations and kernels would import when they are met first."""
    for table in (OPS, ATTRS_PROTO, LOWERINGS, BODIES, FLOAT_FUNCTIONS, COMPLEX_FUNCTIONS):
        table.import_all()
    CPU_KERNELS.import_all()
