"""Ranks with a GPU each, as an MPI job has them: corpus cases give JAX's results, through NCCL and through the host."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from collective_scenarios import SCENARIOS
from loopback_ranks import run_ranks

from collectives.communicator.loopback import LoopbackCommunicator
from collectives.communicator.nccl import NcclCommunicator
from launch.entry import Entry
from launch.expect import check_output, read_expected
from launch.inputs import read_inputs
from launch.pipeline import compile_module
from launch.rank_executable import RankExecutable
from runtime.executable import Executable
from runtime.gpu.collective import NcclCollectives
from runtime.gpu.engine import GpuEngine
from runtime.gpu.options import GpuOptions
from runtime.saved import load_bytes, save_bytes
from spmd.text.parser import parse_module
from tests.collectives.communicator.nccl_double import World
from tests.runtime.gpu.driver_memory import DriverMemory
from tests.runtime.gpu.engines import ptx_of_all
from tests.runtime.gpu.host_driver import HostDriver
from tests.runtime.gpu.on_gpu import OnGpu

NAMES = (
    "gpt_dp2tp2",
    "kv_decode_dp2tp2",
    "mlp_dp2",
    "mlp_fsdp8",
    "ring_attention4",
    "shmap_collectives_2x4",
)
STEPS = 3


def on_rank(
    executable: Executable, host: LoopbackCommunicator, driver: HostDriver, world: World | None
) -> RankExecutable:
    """``executable`` on this rank's own GPU; ``world``: of NCCL, else collectives go through the host."""

    def collectives() -> NcclCollectives | None:
        if world is None:
            return None
        memory = DriverMemory(driver)
        api = world.api(host.rank, memory)
        return NcclCollectives(NcclCommunicator(host, api, memory, timeout_seconds=60))

    executable.engine = GpuEngine(
        lambda _: driver, lambda _: ptx_of_all, GpuOptions(), collectives
    )  # fmt: skip
    return RankExecutable.of(executable, host)


@pytest.mark.parametrize("way", ["nccl", "host"])
@pytest.mark.parametrize("name", NAMES)
def test_case(name: str, way: str, cases: Path) -> None:
    case = json.loads((cases / name / "case.json").read_text())
    module = parse_module((cases / name / "module.hlo").read_text())
    saved = save_bytes(compile_module(module, case["num_partitions"]))
    entry = Entry.of_module(module)
    inputs = read_inputs(cases / name / "inputs.npz", entry.inputs)
    wanted = read_expected(cases / name / "expected.npz", entry.outputs)
    world = World(case["num_partitions"]) if way == "nccl" else None

    def program(host: LoopbackCommunicator) -> None:
        driver = HostDriver()
        executable = on_rank(load_bytes(saved, name), host, driver, world)
        for _ in range(STEPS):  # one by one, captured, replayed
            outputs = executable.run(*inputs, gather="all")
            assert isinstance(outputs, list)
            for got, want in zip(outputs, wanted, strict=True):
                result = check_output(got, want)
                assert result.ok, result
        assert ("a collective" in driver.launched) == (world is not None)

    run_ranks(case["num_partitions"], program, 120)


SCENARIOS_HERE = sorted(set(SCENARIOS) - {"a_second_start_before_the_first_is_over_is_refused"})


@pytest.mark.parametrize("name", SCENARIOS_HERE)
def test_scenario(name: str) -> None:
    """As tests/gpu/nccl_scenarios.py has them on real GPUs."""
    world = World(2)

    def program(host: LoopbackCommunicator) -> None:
        driver = HostDriver()
        memory = DriverMemory(driver)
        api = world.api(host.rank, memory)
        SCENARIOS[name](OnGpu(NcclCommunicator(host, api, memory, timeout_seconds=60), driver))

    run_ranks(2, program, 60)
