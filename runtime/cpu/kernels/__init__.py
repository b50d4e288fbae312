"""Kernels of the CPU back end, one file per kind. ``CPU_KERNELS`` imports a file when it binds its first record."""

from runtime.program.kernel import CPU_KERNELS

CPU_KERNELS.import_at_need(
    {
        "runtime.cpu.kernels.convolution.convolution_call": ("ConvolutionCallKernel",),
        "runtime.cpu.kernels.convolution.grouped": ("GroupConvolutionKernel",),
        "runtime.cpu.kernels.convolution.panels": ("PanelConvolutionKernel",),
        "runtime.cpu.kernels.convolution.phases": ("PhaseConvolutionKernel",),
        "runtime.cpu.kernels.copy.copy": ("CopyKernel", "UninitializedKernel"),
        "runtime.cpu.kernels.copy.slicing": (
            "ConcatenateKernel",
            "DynamicSliceKernel",
            "DynamicUpdateSliceKernel",
            "PadKernel",
        ),
        "runtime.cpu.kernels.fft.fft": ("FftKernel",),
        "runtime.cpu.kernels.gather_scatter.gather_scatter": ("GatherKernel", "ScatterKernel"),
        "runtime.cpu.kernels.gemm.dot": ("DotKernel",),
        "runtime.cpu.kernels.gemm.product_epilogue": ("ProductEpilogueKernel",),
        "runtime.cpu.kernels.gemm.sliced_product": ("SlicedProductKernel",),
        "runtime.cpu.kernels.linalg.factorizations": ("FactorizationKernel",),
        "runtime.cpu.kernels.linalg.tridiagonal": ("TridiagonalSolveKernel",),
        "runtime.cpu.kernels.linalg.linear_algebra": ("CholeskyKernel", "TriangularSolveKernel"),
        "runtime.cpu.kernels.loop.loop": (
            "LoopKernel",
            "PiecesKernel",
            "UpdateKernel",
        ),
        "runtime.cpu.kernels.random.random_bits": ("RandomBitsKernel",),
        "runtime.cpu.kernels.reduce.program_reduce": ("ProgramReduceKernel",),
        "runtime.cpu.kernels.reduce.reduce_window": ("ReduceWindowKernel",),
        "runtime.cpu.kernels.reduce.select_and_scatter": ("SelectAndScatterKernel",),
        "runtime.cpu.kernels.reference": ("AttentionKernel", "RaggedDotKernel", "ReferenceKernel"),
        "runtime.cpu.kernels.rows.rows": ("RowKernel",),
        "runtime.cpu.kernels.sort.sort": ("SortKernel",),
    }
)
