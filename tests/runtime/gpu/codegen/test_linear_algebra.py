"""The kernels around library calls, on an emulated GPU beside the processor's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from runtime.executable import Executable
from runtime.gpu.engine import GpuEngine
from runtime.gpu.launch_maker import launch_maker
from tests.runtime.gpu import decompositions, linear_algebra
from tests.runtime.gpu.codegen.both_ways import both_ways
from tests.runtime.gpu.codegen.emulator import needs_contexts
from tests.runtime.gpu.doubles.host_driver import HostDriver

pytestmark = needs_contexts


def on_double(executable: Executable) -> Executable:
    executable.engine = GpuEngine(lambda _: HostDriver(), launch_maker)
    return executable


@pytest.mark.parametrize("kind", ["f32", "c128"])
@pytest.mark.parametrize(
    ("check", "kernels"),
    [
        (linear_algebra.check_potrf, {"CopyKernel", "LoopKernel"}),
        (linear_algebra.check_triangular_solve, {"CopyKernel"}),
        (decompositions.check_singular_values, {"CopyKernel", "LoopKernel"}),
    ],
)
def test_kernels(
    check: Callable[[Any, str], None],
    kernels: set[str],
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(linear_algebra, "SIZES", [(3, 5), (1, 33)])
    monkeypatch.setattr(linear_algebra, "SYSTEMS", [(2, 4, 3), (70, 3, 2), (3, 33, 9)])
    monkeypatch.setattr(decompositions, "SIZES", [(2, 4, 7), (1, 33, 20)])
    with both_ways() as compared:
        check(on_double, kind)
    assert kernels <= set(compared.run)
