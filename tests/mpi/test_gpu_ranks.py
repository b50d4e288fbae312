"""Ranks whose GPUs are doubles, on the host's memory: their collectives go through the hosts, to JAX's results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collectives.communicator.interface import Communicator
from launch.entry import Entry
from launch.expect import check_output, read_expected
from launch.inputs import read_inputs
from launch.pipeline import compile_module
from launch.rank_executable import RankExecutable
from runtime.gpu.engine import GpuEngine
from runtime.gpu.options import GpuOptions
from spmd.text.load import load
from tests.runtime.gpu.engines import ptx_of_all
from tests.runtime.gpu.host_driver import HostDriver

CASES = Path(__file__).parent.parent / "cases"
NAMES = {2: "mlp_dp2", 4: "ring_attention4", 8: "mlp_fsdp8"}

pytestmark = pytest.mark.mpi(min_size=2)


def test_case_through_the_hosts(comm: Communicator) -> None:
    folder = CASES / NAMES[comm.size]
    assert json.loads((folder / "case.json").read_text())["num_partitions"] == comm.size
    executable = compile_module(load(folder / "module.hlo"), comm.size)
    driver = HostDriver()
    executable.engine = GpuEngine(lambda _: driver, lambda _: ptx_of_all, GpuOptions())
    own = RankExecutable.of(executable, comm)
    entry = Entry.of_module(load(folder / "module.hlo"))
    inputs = read_inputs(folder / "inputs.npz", entry.inputs)
    for _ in range(3):
        outputs = own.run(*inputs, gather="all")
        assert isinstance(outputs, list)
        wanted = read_expected(folder / "expected.npz", entry.outputs)
        for got, want in zip(outputs, wanted, strict=True):
            result = check_output(got, want)
            assert result.ok, result
