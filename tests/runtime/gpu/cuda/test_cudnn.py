"""Tests of the calls of cuDNN's front end, with a double that computes what its graphs describe."""

from __future__ import annotations

import ctypes
import importlib
import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from runtime.gpu.captures import CaptureLock
from runtime.gpu.codegen.launch import KernelSource
from runtime.gpu.errors import GpuLibraryError
from runtime.gpu.libraries.convolution_call import (
    ConvolutionEpilogue,
    Direction,
    LibraryConvolution,
)
from runtime.gpu.views import DeviceView
from runtime.gpu.work import ConvolutionWork, KernelArraysOnDevice, KernelWork
from runtime.program.records.copy import CopyKernel
from runtime.program.strides import StridedView
from spmd.shape import ArrayShape, PrimitiveType
from tests.runtime.gpu.cuda.cupy_double import cupy_double
from tests.runtime.gpu.doubles.cudnn_reading import convolve

F32 = PrimitiveType.F32


@dataclass(eq=False)  # keys of what is executed
class Tensor:
    dim: list[int]
    stride: list[int]
    output: bool = False

    def set_output(self, output: bool) -> Tensor:
        self.output = output
        return self

    def set_dim(self, dim: list[int]) -> Tensor:
        self.dim = dim
        return self

    def set_stride(self, stride: list[int]) -> Tensor:
        self.stride = stride
        return self

    def set_data_type(self, kind: str) -> Tensor:
        assert kind == "FLOAT"
        return self

    def array(self, address: int) -> np.ndarray:
        count = 1 + sum((n - 1) * s for n, s in zip(self.dim, self.stride, strict=True))
        memory = (ctypes.c_float * count).from_address(address)
        strides = tuple(4 * stride for stride in self.stride)
        return np.ndarray(tuple(self.dim), np.float32, memory, 0, strides)


@dataclass
class Double:
    """The module. needs: bytes of workspace that its only kernel takes. fused: there are kernels with epilogues."""

    needs: int = 1000
    supported: bool = True
    fused: bool = True
    graphs: list[Graph] = field(default_factory=list)
    streams: list[int] = field(default_factory=list)

    def module(self) -> ModuleType:
        made = ModuleType("cudnn")
        types = ("HALF", "BFLOAT16", "FLOAT", "DOUBLE")
        notes = (
            "NONDETERMINISTIC",
            "TENSOR_CORE",
            "DOWN_CONVERT_INPUTS",
            "REDUCED_PRECISION_REDUCTION",
        )
        made.data_type = SimpleNamespace(**{name: name for name in types})
        made.numerical_note = SimpleNamespace(**{name: name for name in notes})
        made.heur_mode = SimpleNamespace(A="A", FALLBACK="FALLBACK")
        made.cudnnGraphNotSupportedError = type("NotSupported", (Exception,), {})
        made.create_handle = object
        made.destroy_handle = lambda _: None
        made.set_stream = lambda *, handle, stream: self.streams.append(stream)
        made.pygraph = lambda **given: Graph(self, given)
        return made


class Graph:
    def __init__(self, double: Double, given: dict[str, Any]) -> None:
        self.double, self.given = double, given
        self.refused: list[str] = []
        self.limit: int | None = None
        double.graphs.append(self)

    def tensor(self, *, name: str, dim: list[int], stride: list[int], data_type: str) -> Tensor:
        assert data_type == self.given["io_data_type"] == "FLOAT"
        return Tensor(dim, stride)

    def conv_fprop(self, *, image: Tensor, weight: Tensor, **given: Any) -> Tensor:
        return self._convolution(Direction.FORWARD, image, weight, given)

    def conv_dgrad(self, *, loss: Tensor, filter: Tensor, **given: Any) -> Tensor:  # noqa: A002
        return self._convolution(Direction.INPUT, loss, filter, given)

    def conv_wgrad(self, *, image: Tensor, loss: Tensor, **given: Any) -> Tensor:
        return self._convolution(Direction.FILTER, image, loss, given)

    def _convolution(
        self, direction: Direction, first: Tensor, second: Tensor, given: dict[str, Any]
    ) -> Tensor:
        self.direction, self.tensors, self.window = direction, (first, second), given
        self.result, self.after = Tensor([], []), dict[str, Tensor]()
        return self.result

    def add(self, *, a: Tensor, b: Tensor, compute_data_type: str) -> Tensor:
        return self._then("addend", a, b, compute_data_type)

    def bias(self, *, input: Tensor, bias: Tensor, compute_data_type: str) -> Tensor:  # noqa: A002
        return self._then("bias", input, bias, compute_data_type)

    def relu(self, *, input: Tensor, compute_data_type: str) -> Tensor:  # noqa: A002
        return self._then("relu", input, input, compute_data_type)

    def _then(self, name: str, of: Tensor, other: Tensor, compute_data_type: str) -> Tensor:
        assert compute_data_type == "FLOAT"
        assert of is self.result
        assert name not in self.after
        self.after[name], self.result = other, Tensor([], [])
        return self.result

    def validate(self) -> None:
        assert self.result.output

    def build_operation_graph(self) -> None: ...

    def create_execution_plans(self, modes: list[str]) -> None:
        assert modes == ["A", "FALLBACK"]

    def deselect_numeric_notes(self, notes: list[str]) -> None:
        self.refused += notes

    def deselect_workspace_greater_than(self, limit: int) -> None:
        self.limit = limit

    def check_support(self) -> None:
        too_little = self.limit is not None and self.limit < self.double.needs
        apart = bool(self.after) and not self.double.fused
        if too_little or apart or not self.double.supported:
            raise sys.modules["cudnn"].cudnnGraphNotSupportedError("no engine\nand why")

    def build_plans(self) -> None: ...

    def get_workspace_size(self) -> int:
        return self.double.needs

    def execute(self, arrays: dict[Tensor, int], workspace: int, *, handle: object) -> None:
        sizes = {
            Direction.FORWARD: ("image", "filter", "output"),
            Direction.INPUT: ("output", "filter", "image"),
            Direction.FILTER: ("image", "output", "filter"),
        }[self.direction]
        tensors = (*self.tensors, self.result)
        described = {name: tuple(t.dim) for name, t in zip(sizes, tensors, strict=True)}
        call = LibraryConvolution(
            self.direction,
            before=tuple(self.window["pre_padding"]),
            after=tuple(self.window["post_padding"]),
            strides=tuple(self.window["stride"]),
            dilations=tuple(self.window["dilation"]),
            element_type=F32,
            sums=F32,
            channels_last=True,
            epilogue=ConvolutionEpilogue(*(n in self.after for n in ("addend", "bias", "relu"))),
            **described,
        )
        read = {n: t.array(arrays[t]) for n, t in self.after.items() if n != "relu"}
        convolve(call, *(t.array(arrays[t]) for t in tensors), **read)


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> Iterator[Double]:
    found = Double()
    monkeypatch.setitem(sys.modules, "cudnn", found.module())
    monkeypatch.delitem(sys.modules, "runtime.gpu.cuda.cudnn", raising=False)
    yield found
    sys.modules.pop("runtime.gpu.cuda.cudnn", None)


def call_of(
    direction: Direction, *, tf32: bool = False, epilogue: ConvolutionEpilogue | None = None
) -> LibraryConvolution:
    return LibraryConvolution(
        direction,
        (2, 4, 7, 6),
        (6, 2, 3, 2),
        (2, 6, 4, 5),
        (1, 0),
        (1, 1),
        (2, 1),
        (1, 2),
        F32,
        F32,
        channels_last=True,
        tf32=tf32,
        epilogue=epilogue,
    )


class Memory:
    """Blocks on the host; ``sizes``: of those that were allocated."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def allocate(self, num_bytes: int) -> SimpleNamespace:
        self.sizes.append(num_bytes)
        return SimpleNamespace(address=4096)


#: Every epilogue, and every direction without one.
CALLS = [call_of(direction) for direction in Direction] + [
    call_of(Direction.FORWARD, epilogue=ConvolutionEpilogue(*chosen))
    for chosen in itertools.product([False, True], repeat=3)
]


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_graphs_describe_what_is_called(call: LibraryConvolution, double: Double) -> None:
    cudnn = importlib.import_module("runtime.gpu.cuda.cudnn")
    rng = np.random.default_rng(0)
    epilogue = call.epilogue or ConvolutionEpilogue()
    sizes = dict(zip(("first", "second", "result"), call.arrays, strict=True))
    if epilogue.addend:
        sizes["addend"] = call.output
    if epilogue.bias:
        sizes["bias"] = (1, call.output[1], 1, 1)
    memories, seen, views = [], {}, {}
    for name, dims in sizes.items():
        memory = rng.standard_normal(int(np.prod(dims))).astype(np.float32)
        memories.append(memory)
        strides = tuple(4 * stride for stride in call.strides_of(dims))
        seen[name] = np.ndarray(dims, np.float32, memory, 0, strides)
        views[name] = DeviceView(memory.ctypes.data, StridedView.dense(ArrayShape(F32, dims)))
    want = np.zeros_like(seen["result"])
    convolve(call, **{**seen, "result": want})
    library = cudnn.Cudnn(Memory().allocate, CaptureLock())
    library.load(ConvolutionWork(call, **views))(SimpleNamespace(ptr=7))
    np.testing.assert_array_equal(seen["result"], want)
    assert double.streams == [7]
    library.load(ConvolutionWork(call, **views))
    assert len(double.graphs) == 1


@pytest.mark.parametrize("fused", [False, True])
def test_an_epilogue_without_kernel_is_computed_after_the_convolution(
    fused: bool, double: Double
) -> None:
    double.fused = fused
    call = call_of(Direction.FORWARD, epilogue=ConvolutionEpilogue(relu=True))
    source = KernelSource("kernel", (), (), 0, 1, 32, ())
    otherwise = KernelWork(CopyKernel(), (source,), KernelArraysOnDevice((), ()))
    with cupy_double() as cupy:
        driver = importlib.import_module("runtime.gpu.cuda.driver").CudaDriver(0)
        driver.load(replace(work_of(call), otherwise=otherwise))
        assert bool(cupy.loaded) is not fused
    assert bool(double.graphs[-1].after) is fused


@pytest.mark.parametrize("tf32", [False, True])
def test_kernels_that_change_bits_are_refused(tf32: bool, double: Double) -> None:
    cudnn = importlib.import_module("runtime.gpu.cuda.cudnn")
    cudnn.Cudnn(Memory().allocate, CaptureLock()).load(
        work_of(call_of(Direction.FORWARD, tf32=tf32))
    )
    (graph,) = double.graphs
    assert "NONDETERMINISTIC" in graph.refused
    assert ("TENSOR_CORE" in graph.refused) is not tf32


def test_a_large_workspace_is_taken_where_nothing_else_is(double: Double) -> None:
    cudnn = importlib.import_module("runtime.gpu.cuda.cudnn")
    double.needs, memory = 1 << 30, Memory()
    cudnn.Cudnn(memory.allocate, CaptureLock()).load(work_of(call_of(Direction.FORWARD)))
    assert [graph.limit for graph in double.graphs] == [1 << 29, None]
    assert memory.sizes == [1 << 30]


def test_what_cudnn_has_not_is_said(double: Double) -> None:
    cudnn = importlib.import_module("runtime.gpu.cuda.cudnn")
    double.supported = False
    with pytest.raises(GpuLibraryError, match=r"cuDNN has no kernel for .*: no engine$"):
        cudnn.Cudnn(Memory().allocate, CaptureLock()).load(work_of(call_of(Direction.FORWARD)))


def work_of(call: LibraryConvolution) -> ConvolutionWork:
    views = (DeviceView(4096, StridedView.dense(ArrayShape(F32, dims))) for dims in call.arrays)
    return ConvolutionWork(call, *views)
