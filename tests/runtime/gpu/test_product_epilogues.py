"""Products whose epilogue a library computes in the same call, on a double of a GPU."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from runtime.executable import Executable
from runtime.gpu.engine import GpuEngine
from runtime.gpu.launch_maker import launch_maker
from runtime.gpu.libraries.gemm import CallEpilogue
from runtime.gpu.options import DEFAULT, GpuOptions
from runtime.gpu.report import KernelReport
from runtime.gpu.work import GemmWork, Work
from spmd.evaluator.evaluator import evaluate
from tests.runtime.fusion.products.test_product_fusions import (
    COLUMNS,
    DENSE,
    KEPT,
    NARROW,
    module_text,
)
from tests.runtime.gpu.doubles.engines import devices_of
from tests.runtime.gpu.doubles.host_driver import HostDriver
from tests.runtime.gpu.doubles.host_streams import HostStream
from tests.runtime.gpu.product_epilogues import (
    UPDATE,
    Program,
    check_outputs,
    compiled_for_gpu,
    random_program,
)
from tests.runtime.programs import compiled, module_of, random_inputs


def noted(executable: Executable, options: GpuOptions = DEFAULT) -> list[GemmWork]:
    """Have ``executable`` run on a double; its products are in the list once it is loaded."""
    works: list[GemmWork] = []

    class Noting(HostDriver):
        def load(self, work: Work) -> Callable[[HostStream], None]:
            if isinstance(work, GemmWork):
                works.append(work)
            return super().load(work)

    executable.engine = GpuEngine(lambda _: Noting(), launch_maker, options)
    return works


def report(executable: Executable) -> KernelReport:
    (device,) = devices_of(executable).devices
    return device.kernel_report


@pytest.mark.parametrize("seed", range(84))
def test_random_programs_are_one_call(seed: int) -> None:
    program = random_program(seed)
    executable = compiled_for_gpu(program.text)
    works = noted(executable)
    check_outputs(executable, program)
    assert report(executable) == KernelReport(0, 1, ())
    assert [call.epilogue is None for own in works for call in own.calls] == [False]


@pytest.mark.parametrize("seed", range(14))
def test_the_same_programs_without_epilogues(seed: int) -> None:
    """The program is the same; the product goes into the workspace, and a kernel in PTX reads it."""
    program = random_program(seed)
    executable = compiled_for_gpu(program.text)
    works = noted(executable, GpuOptions(epilogues=False))
    check_outputs(executable, program)
    assert not report(executable).hosted
    assert all(call.epilogue is None for own in works for call in own.calls)


@pytest.mark.parametrize("seed", range(14))
def test_the_same_programs_on_the_cpu(seed: int) -> None:
    program = random_program(seed)
    check_outputs(compiled_for_gpu(program.text), program)


def test_an_update_overwrites_its_parameter() -> None:
    executable = compiled_for_gpu(UPDATE)
    works = noted(executable)
    check_outputs(executable, Program(UPDATE, 1e-5))
    (work,) = works
    (call,) = work.calls
    assert call.epilogue == CallEpilogue(alpha=-0.125, beta=1.0)
    assert work.addend is not None
    assert work.addend.first == work.result.first
    assert executable.stats.temp == 0  # neither the product nor scratch for a CPU


#: A product and what is computed of it; the library does none of these in the call of the product.
APART = {
    "a bias along rows": """
  bs = f32[M,N] broadcast(b), dimensions={0}
  ROOT o = f32[M,N] add(y, bs)""",
    "another function": """
  ROOT o = f32[M,N] tanh(y)""",
    "a transposed result": """
  bs = f32[M,N] broadcast(b), dimensions={0}
  s = f32[M,N] add(y, bs)
  ROOT o = f32[N,M] transpose(s), dimensions={1,0}""",
    "a transposed addend": """
  t = f32[M,N] transpose(r), dimensions={1,0}
  ROOT o = f32[M,N] add(y, t)""",
    "two readers": """
  n = f32[M,N] negate(y)
  e = f32[M,N] exponential(y)
  s = f32[N,N] dot(n, e), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  t = f32[N,N] tanh(s)
  ROOT o = f32[N,N] multiply(t, t)""",
}


@pytest.mark.parametrize("name", APART)
def test_what_the_library_does_not_compute(name: str) -> None:
    text = module_text(
        f"""
ENTRY e {{
  x = f32[M,K] parameter(0)
  w = f32[K,N] parameter(1)
  r = f32[N,M] parameter(2)
  b = f32[M] parameter(3)
  y = f32[M,N] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}{APART[name]}
}}
""",
        {"M": 24, "N": 40, "K": 16},
    )
    executable = compiled_for_gpu(text)
    works = noted(executable)
    check_outputs(executable, Program(text, 1e-5))
    assert not report(executable).hosted
    assert all(call.epilogue is None for own in works for call in own.calls)


@pytest.mark.parametrize("template", [DENSE, KEPT, COLUMNS, NARROW])
def test_fusions_for_processors_are_not_hosted(template: str) -> None:
    """Programs that were compiled for a CPU have products with any epilogue."""
    text = module_text(template, {"S": 2, "M": 33, "N": 70, "K": 129})
    executable = compiled(text)
    noted(executable)
    inputs = random_inputs(module_of(text))
    wanted = evaluate(module_of(text), *inputs)
    tolerance = 3e-2 if template is NARROW else 1e-5
    for got, want in zip(executable.run(*inputs), wanted, strict=True):
        wide = want.astype(np.float64)
        np.testing.assert_allclose(got.astype(np.float64), wide, 0, tolerance * np.abs(wide).max())
    assert not report(executable).hosted


BATCH = """HloModule batch

ENTRY e {{
  x = f32[{count},4,2] parameter(0)
  w = f32[{count},2,3] parameter(1)
  b = f32[3] parameter(2)
  d = f32[{count},4,3] dot(x, w), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, lhs_contracting_dims={{2}}, rhs_contracting_dims={{1}}
  bs = f32[{count},4,3] broadcast(b), dimensions={{2}}
  ROOT o = f32[{count},4,3] add(d, bs)
}}
"""


@pytest.mark.parametrize(("count", "is_one"), [(65535, True), (65536, False)])
def test_the_largest_batch(count: int, is_one: bool) -> None:
    text = BATCH.format(count=count)
    executable = compiled_for_gpu(text)
    works = noted(executable)
    check_outputs(executable, Program(text, 1e-5))
    assert [call.epilogue is not None for work in works for call in work.calls] == [is_one]
