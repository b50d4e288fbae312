"""The arrays that a unit of GPU work reads and writes, by which doubles find work that is not ordered."""

from __future__ import annotations

from typing import TypeAlias

from runtime.gpu.libraries.linalg_work import SolverWork, TriangularSolveWork
from runtime.gpu.views import DeviceView
from runtime.gpu.work import (
    ConvolutionWork,
    CopyWork,
    FftWork,
    GemmWork,
    HorizontalWork,
    KernelWork,
    TritonWork,
    Work,
)
from runtime.program.gemm_epilogue import Activation

Arrays: TypeAlias = tuple[DeviceView, ...]


def reads_and_writes(work: Work) -> tuple[Arrays, Arrays]:
    match work:
        case KernelWork(arrays=own):
            return own.operands, (*own.scratch, *own.results)
        case HorizontalWork(parts=parts):
            each = [reads_and_writes(part) for part in parts]
            return (
                tuple(view for reads, _ in each for view in reads),
                tuple(view for _, writes in each for view in writes),
            )
        case TritonWork(arrays=own):
            return own.operands, own.results
        case GemmWork():
            read, written = [work.addend, work.bias, *work.scales], [work.result]
            epilogues = [call.epilogue for call in work.calls if call.epilogue is not None]
            writes_aux = any(one.activation is Activation.GELU for one in epilogues)
            (written if writes_aux else read).append(work.aux)
            others, results = (
                tuple(view for view in views if view is not None) for views in (read, written)
            )
            return (work.lhs, work.rhs, *others), results
        case ConvolutionWork():
            others = tuple(view for view in (work.addend, work.bias) if view is not None)
            return (work.first, work.second, *others), (work.result,)
        case CopyWork() | FftWork():
            return (work.source,), (work.target,)
        case TriangularSolveWork():
            return (work.triangles, work.sides), (work.sides,)
        case SolverWork():
            return work.arrays, work.arrays
    raise AssertionError(f"{type(work).__name__} is no work of a driver")
