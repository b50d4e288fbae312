"""Tests that need a GPU: left out, with the reason, where there is none. `make test-gpu` wants one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from launch.target.engine_choice import gpu_options
from runtime.executable import Executable
from runtime.gpu.driver import GpuDriver
from runtime.gpu.engine import GpuEngine
from runtime.gpu.errors import NoGpuError
from runtime.gpu.launch_maker import launch_maker
from runtime.gpu.options import GpuOptions
from tests.paths import CASES
from tests.runtime.gpu.doubles.host_driver import HostDriver
from tests.runtime.gpu.doubles.host_streams import HostGpu

#: The copied corpus cases: NAME/{module.hlo, inputs.npz, expected.npz, case.json}.


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--double",
        action="store_true",
        help="on a double of a GPU: whether the tests themselves run",
    )
    parser.addoption(
        "--cases",
        type=Path,
        default=CASES,
        help="another folder of cases: all of them are run, NAME/{module.hlo, inputs.npz, expected.npz, case.json}",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each test of a case those of --cases."""
    if "case_folder" in metafunc.fixturenames:
        folder: Path = metafunc.config.getoption("--cases", default=CASES)
        names = sorted(file.parent.name for file in folder.glob("*/inputs.npz"))
        metafunc.parametrize("case_folder", [folder / name for name in names], ids=names)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run ranks last: two of one GPU may hang in NCCL."""
    ranks = Path(__file__).with_name("test_gpu_ranks.py")
    items.sort(key=lambda item: item.path == ranks)


@pytest.fixture
def is_double(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--double", default=False))


@pytest.fixture
def _gpu(is_double: bool) -> None:
    from runtime.gpu.availability import require_gpu

    if is_double:
        return
    try:
        require_gpu()
    except NoGpuError as error:
        pytest.skip(f"not run on a GPU: {error}")


@pytest.fixture
def driver(_gpu: None, is_double: bool) -> GpuDriver:
    if is_double:
        return HostDriver()
    from runtime.gpu.cuda.driver import CudaDriver  # imports CuPy

    return CudaDriver(0)


@dataclass
class OnGpu:
    """Puts executables on the GPUs that there are."""

    is_double: bool

    def __call__(self, executable: Executable, **options: bool) -> Executable:
        wanted = GpuOptions(**options)
        # SPMD_GPU_GRAPHS=off holds for tests of graphs, too: to see which kernel fails.
        said = gpu_options()
        given = replace(wanted, graphs=wanted.graphs and said.graphs, tf32=said.tf32)
        if self.is_double:
            gpu = HostGpu()  # one for all devices, as on a machine with one
            executable.engine = GpuEngine(lambda _: HostDriver(gpu=gpu), launch_maker, given)
            return executable
        from runtime.gpu.cuda.engine import cuda_engine

        executable.engine = cuda_engine(given)
        return executable


@pytest.fixture
def on_gpu(_gpu: None, is_double: bool) -> OnGpu:
    return OnGpu(is_double)
