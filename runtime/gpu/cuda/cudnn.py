"""Convolutions by cuDNN, through its Python front end (nvidia-cudnn-frontend)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import cudnn

from runtime.gpu.captures import CaptureLock
from runtime.gpu.cuda.handles import destroy_after
from runtime.gpu.driver import Enqueue, GpuBlock, GpuStream
from runtime.gpu.errors import GpuLibraryError
from runtime.gpu.libraries.convolution_call import (
    ConvolutionEpilogue,
    Direction,
    LibraryConvolution,
)
from runtime.gpu.work import ConvolutionWork
from spmd.shape import PrimitiveType

#: Limit of the workspace of a kernel in bytes, unless no kernel observes it. cuDNN's own heuristics use as much for
#: convolutions of images.
_MOST_WORKSPACE = 1 << 29

_TYPES = {
    PrimitiveType.F16: cudnn.data_type.HALF,
    PrimitiveType.BF16: cudnn.data_type.BFLOAT16,
    PrimitiveType.F32: cudnn.data_type.FLOAT,
    PrimitiveType.F64: cudnn.data_type.DOUBLE,
}
_NOTES = cudnn.numerical_note
#: Properties of kernels that are excluded for all convolutions: every step must give the same bits.
_NEVER = [_NOTES.NONDETERMINISTIC]
#: Properties of kernels that are also excluded for f32 convolutions without TF32.
_NOT_EXACT = [_NOTES.TENSOR_CORE, _NOTES.DOWN_CONVERT_INPUTS, _NOTES.REDUCED_PRECISION_REDUCTION]


class Cudnn:
    """cuDNN handle of one device, with a cached cuDNN graph for each distinct convolution.

    One stream at a time may use the handle. ``allocate`` allocates a number of bytes of device memory. ``captures`` is
    the capture lock of the GPU.
    """

    def __init__(self, allocate: Callable[[int], GpuBlock], captures: CaptureLock) -> None:
        self._allocate = allocate
        self._handle = cudnn.create_handle()
        self._graphs: dict[LibraryConvolution, tuple[Any, tuple[Any, ...]]] = {}
        self._workspaces: list[GpuBlock] = []
        self._workspace_bytes = 0
        destroy_after(self, captures, partial(_destroy, self._graphs, self._handle))

    def load(self, work: ConvolutionWork) -> Enqueue:
        """Bind ``work``; its cuDNN graph is built here. Raises GpuLibraryError if cuDNN has no kernel for it."""
        graph, tensors = self._graph(work.convolution)
        views = (work.first, work.second, work.addend, work.bias, work.result)
        given = [view.first for view in views if view is not None]
        arrays = dict(zip(tensors, given, strict=True))
        workspace, handle = self._workspace(graph.get_workspace_size()), self._handle

        def enqueue(stream: GpuStream) -> None:
            cudnn.set_stream(handle=handle, stream=stream.ptr)
            graph.execute(arrays, workspace, handle=handle)

        return enqueue

    def has_kernel(self, convolution: LibraryConvolution) -> bool:
        """Return whether cuDNN has a kernel for ``convolution``. Its cuDNN graph is built here."""
        try:
            self._graph(convolution)
        except GpuLibraryError:
            return False
        return True

    def _workspace(self, num_bytes: int) -> int:
        """Return the address of a workspace of at least ``num_bytes``.

        All convolutions share it, since they run one after another on one stream.
        """
        if num_bytes > self._workspace_bytes or not self._workspaces:
            self._workspaces.append(self._allocate(num_bytes))  # earlier graphs retain theirs
            self._workspace_bytes = num_bytes
        return self._workspaces[-1].address

    def _graph(self, convolution: LibraryConvolution) -> tuple[Any, tuple[Any, ...]]:
        if convolution not in self._graphs:
            self._graphs[convolution] = self._built(convolution)
        return self._graphs[convolution]

    def _built(self, convolution: LibraryConvolution) -> tuple[Any, tuple[Any, ...]]:
        refused = [*_NEVER]
        if convolution.element_type is PrimitiveType.F32 and not convolution.tf32:
            refused += _NOT_EXACT
        errors: list[str] = []
        for limit in (_MOST_WORKSPACE, None):
            graph, tensors = self._described(convolution)
            try:
                graph.validate()
                graph.build_operation_graph()
                graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
                graph.deselect_numeric_notes(refused)
                if limit is not None:
                    graph.deselect_workspace_greater_than(limit)
                graph.check_support()
                graph.build_plans()
            except (cudnn.cudnnGraphNotSupportedError, RuntimeError) as error:
                errors.append(str(error).strip().splitlines()[0])
                continue
            return graph, tensors
        raise GpuLibraryError(f"cuDNN has no kernel for {convolution}: {errors[-1]}")

    def _described(self, convolution: LibraryConvolution) -> tuple[Any, tuple[Any, ...]]:
        """Return the cuDNN graph of ``convolution``, and its tensors: operands, addend, bias and result."""
        kind, sums = _TYPES[convolution.element_type], _TYPES[convolution.sums]
        graph = cudnn.pygraph(
            io_data_type=kind,
            intermediate_data_type=sums,
            compute_data_type=sums,
            handle=self._handle,
        )

        def tensor(name: str, dims: Sequence[int]) -> Any:
            stride = list(convolution.strides_of(dims))
            return graph.tensor(name=name, dim=list(dims), stride=stride, data_type=kind)

        *sizes, dims = convolution.arrays
        tensors = [tensor(name, own) for name, own in zip(("first", "second"), sizes, strict=True)]
        first, second = tensors
        given = {
            "pre_padding": list(convolution.before),
            "post_padding": list(convolution.after),
            "stride": list(convolution.strides),
            "dilation": list(convolution.dilations),
            "compute_data_type": sums,
        }
        if convolution.direction is Direction.FORWARD:
            result = graph.conv_fprop(image=first, weight=second, **given)
        elif convolution.direction is Direction.INPUT:
            result = graph.conv_dgrad(loss=first, filter=second, **given)
        else:
            result = graph.conv_wgrad(image=first, loss=second, **given)
        epilogue = convolution.epilogue or ConvolutionEpilogue()
        # The addend before the bias: the order of cudnnConvolutionBiasActivationForward, whose kernels fit it.
        if epilogue.addend:
            tensors.append(tensor("addend", dims))
            result = graph.add(a=result, b=tensors[-1], compute_data_type=sums)
        if epilogue.bias:
            features = dims[1]
            tensors.append(tensor("bias", (1, features, *(1 for _ in dims[2:]))))
            result = graph.bias(input=result, bias=tensors[-1], compute_data_type=sums)
        if epilogue.relu:
            result = graph.relu(input=result, compute_data_type=sums)
        stride = list(convolution.strides_of(dims))
        result.set_output(True).set_dim(list(dims)).set_stride(stride).set_data_type(kind)
        return graph, (*tensors, result)


def _destroy(graphs: dict[LibraryConvolution, Any], handle: object) -> None:
    """Destroy ``graphs``, then the handle with which they were built."""
    graphs.clear()
    cudnn.destroy_handle(handle)
