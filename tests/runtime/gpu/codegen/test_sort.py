"""sort on a GPU beside the processor's: ties stay as they stood, in rows of all lengths."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.gpu.codegen.emitters import GpuArrays, sources
from runtime.gpu.codegen.launch import GpuTarget
from runtime.program.thunks import KernelThunk
from spmd.literal import NDArray
from tests.runtime.cpu.kernels.sort.test_sort import ONE, TWO, few_values
from tests.runtime.gpu.codegen.assembler import accepted, needs_assembler
from tests.runtime.gpu.codegen.both_ways import both_ways
from tests.runtime.gpu.codegen.emulator import needs_contexts
from tests.runtime.programs.build import compiled, random_inputs

pytestmark = needs_contexts


def run(text: str, *inputs: NDArray) -> None:
    with both_ways() as compared:
        executable = compiled(text)
        executable.run(*(inputs or random_inputs(executable.module)))
    assert compared.run["SortKernel"] == 1


def total(kind: str) -> str:
    return ", type=TOTALORDER" if kind.startswith("f") else ""


@pytest.mark.parametrize("kind", ["f32", "f64", "s32", "u8", "s64"])
@pytest.mark.parametrize("direction", ["LT", "GT"])
@pytest.mark.parametrize(
    ("dims", "axis"),
    [((1,), 0), ((2,), 0), ((64,), 0), ((5, 17), 1), ((17, 5), 0), ((2, 3, 300, 2), 2)],
)
def test_one_array(kind: str, direction: str, dims: tuple[int, ...], axis: int) -> None:
    shape = ",".join(map(str, dims))
    text = ONE.format(kind=kind, direction=direction, order=total(kind), dims=shape, axis=axis)
    run(text, few_values(kind, dims))


def test_long_rows() -> None:
    """The places of the elements of long rows lie in the workspace."""
    text = ONE.format(kind="s32", direction="LT", order="", dims="2,20000", axis=1)
    run(text, np.random.default_rng(0).integers(0, 9999, (2, 20000)).astype(np.int32))


def test_several_keys_and_values() -> None:
    executable = compiled(TWO)
    inputs = random_inputs(executable.module)
    inputs[0] = np.round(inputs[0])
    run(TWO, *inputs)


@needs_assembler
@pytest.mark.parametrize("dims", ["4096", "8,100000"])
def test_accepted_without_spills(dims: str) -> None:
    axis = dims.count(",")
    text = ONE.format(kind="f32", direction="LT", order=total("f32"), dims=dims, axis=axis)
    (thunk,) = [x for x in compiled(text).program.thunks.thunks if isinstance(x, KernelThunk)]
    views = [tuple(x.view for x in own) for own in (thunk.operands, thunk.results, thunk.scratch)]
    found = sources(thunk.kernel, GpuArrays(*views, GpuTarget()))
    assert all(x.spilled == 0 for x in accepted(found))
