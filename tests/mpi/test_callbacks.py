"""Python functions on ranks: rank 0 compiles for all, and each rank calls the functions of its own module."""

from __future__ import annotations

import numpy as np
import pytest

import spmd
from collectives.communicator.interface import Communicator
from launch.cache.compile_cached import compile_source
from launch.options import CompileOptions
from launch.ranks.shared_compile import compile_on_first
from launch.source import ModuleSource
from spmd.hlo.host_functions import HostFunctions
from spmd.literal import NDArray
from tests.launch.test_callbacks import CALLS

pytestmark = pytest.mark.mpi(min_size=2)


def test_each_rank_calls_its_own_functions(comm: Communicator) -> None:
    if comm.size != 2:
        pytest.skip("the program is for two devices")
    seen: list[str] = []

    def one(_: NDArray) -> tuple[()]:
        seen.append("one")
        return ()

    def tiles(x: NDArray) -> tuple[()]:
        seen.append(f"tile of {len(x)} rows")
        return ()

    def pure(x: NDArray) -> tuple[NDArray]:
        seen.append("pure")
        return (2 * x,)

    module = spmd.parse(CALLS)
    module.host_functions = HostFunctions((one, tiles, pure))
    options = CompileOptions()
    executable = compile_on_first(
        comm,
        lambda: compile_source(ModuleSource(lambda: module), 2, options),
        callbacks=module.host_functions.callbacks,
    )
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    (got,) = executable.run(x, gather="all")
    assert np.array_equal(got, 3 * x)
    own = "pure" if comm.rank == 0 else "one"
    assert sorted(seen) == sorted([own, "tile of 2 rows"])
