"""Tests of ranks with a GPU each, as in an MPI job: cases give JAX's results, through NCCL and through the host."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from collective_scenarios import SCENARIOS
from loopback_ranks import run_ranks

from collectives.communicator.loopback.communicator import LoopbackCommunicator
from collectives.communicator.nccl.communicator import NcclCommunicator
from launch.checks.expect import check_output, read_expected
from launch.data.inputs import read_inputs
from launch.options import CompileOptions
from launch.pipeline import compile_module
from launch.ranks.rank_executable import RankExecutable
from runtime.executable import Executable
from runtime.gpu.engine import GpuEngine
from runtime.gpu.options import GpuOptions
from runtime.saved import save_bytes
from runtime.saved_program import load_bytes
from spmd.errors import RunError
from spmd.text.parser import parse_module
from tests.collectives.communicator.nccl.nccl_double import World
from tests.runtime.compiled_cases import compiled_case
from tests.runtime.gpu.doubles.driver_memory import DriverMemory
from tests.runtime.gpu.doubles.engines import ptx_of_all
from tests.runtime.gpu.doubles.host_driver import HostDriver
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


@contextmanager
def nccl_of(
    host: LoopbackCommunicator, driver: HostDriver, world: World
) -> Iterator[NcclCommunicator]:
    """Yield a rank's communicator, whose watchdog ends with the context.

    If it lasted as long as the process, it would take time from all later tests.
    """
    memory = DriverMemory(driver)
    comm = NcclCommunicator(host, world.api(host.rank, memory), memory, timeout_seconds=60)
    try:
        yield comm
    finally:
        comm.leave()


@contextmanager
def on_rank(
    executable: Executable, host: LoopbackCommunicator, driver: HostDriver, world: World | None
) -> Iterator[RankExecutable]:
    """Yield ``executable`` on this rank's own GPU, with NCCL in ``world``, or with collectives through the host."""
    with ExitStack() as stack:

        def collectives() -> NcclCommunicator | None:
            if world is None:
                return None
            return stack.enter_context(nccl_of(host, driver, world))

        executable.engine = GpuEngine(
            lambda _: driver, lambda _: ptx_of_all, GpuOptions(), collectives
        )  # fmt: skip
        yield RankExecutable.of(executable, host)


@pytest.mark.parametrize(
    ("name", "way"),
    [
        *((name, "nccl") for name in NAMES),
        # The largest case sends nothing through the host that another one of as many devices does not send.
        *((name, "host") for name in NAMES if name != "gpt_dp2tp2"),
    ],
)
def test_case(name: str, way: str, cases: Path) -> None:
    case = compiled_case(cases / name)
    inputs = read_inputs(cases / name / "inputs.npz", case.entry.inputs)
    wanted = read_expected(cases / name / "expected.npz", case.entry.outputs)
    world = World(case.devices) if way == "nccl" else None

    def program(host: LoopbackCommunicator) -> None:
        driver = HostDriver()
        with on_rank(case.executable(), host, driver, world) as executable:
            for _ in range(STEPS):  # one by one, captured, replayed
                outputs = executable.run(*inputs, gather="all")
                assert isinstance(outputs, list)
                for got, want in zip(outputs, wanted, strict=True):
                    result = check_output(got, want)
                    assert result.ok, result
        assert ("a collective" in driver.launched) == (world is not None)

    run_ranks(case.devices, program, 120)


def test_the_memory_of_a_program_is_registered_as_long_as_the_program_lives(cases: Path) -> None:
    """Each communicator has the arena as a symmetric window, and it is freed with the program."""
    case = compiled_case(cases / "gpt_dp2tp2")
    inputs = read_inputs(cases / "gpt_dp2tp2" / "inputs.npz", case.entry.inputs)
    world = World(case.devices)

    def run(host: LoopbackCommunicator, comm: NcclCommunicator, driver: HostDriver) -> None:
        executable = case.executable()
        executable.engine = GpuEngine(
            lambda _: driver, lambda _: ptx_of_all, GpuOptions(), lambda: comm
        )
        ranked = RankExecutable.of(executable, host)
        for _ in range(STEPS):
            ranked.run(*inputs)

    def program(host: LoopbackCommunicator) -> None:
        driver = HostDriver()
        with nccl_of(host, driver, world) as comm:
            run(host, comm, driver)
            host.barrier()
            if host.rank == 0:
                gc.collect()
                assert not world.memory
                assert not any(end.persistent for end in world.ends.values())
            host.barrier()

    run_ranks(case.devices, program, 120)
    groups = [(0, 1), (2, 3), (0, 2), (1, 3)]
    assert sorted(world.registered) == sorted((True, group) for group in 2 * groups)


def test_an_abort_within_a_step_can_destroy_all_graphs(
    cases: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NCCL does not abort a communicator while a graph has its work, and a wait may fail before any launch."""
    case = compiled_case(cases / "mlp_dp2")
    inputs = read_inputs(cases / "mlp_dp2" / "inputs.npz", case.entry.inputs)
    world = World(case.devices)
    left: list[int] = []

    def fail(comm: NcclCommunicator, *_: object) -> None:
        comm._cliques._release_graphs()
        ends = [end for end in world.ends.values() if end.rank == comm.host.rank]
        left.append(sum(end.persistent for end in ends))
        raise RunError("the wait for an earlier collective failed")

    monkeypatch.setattr(NcclCommunicator, "replay", fail)

    def program(host: LoopbackCommunicator) -> None:
        with on_rank(case.executable(), host, HostDriver(), world) as executable:
            executable.run(*inputs)
            with pytest.raises(RunError, match="earlier collective"):
                executable.run(*inputs)

    run_ranks(case.devices, program, 60)
    assert left == [0, 0]


SCENARIOS_HERE = sorted(set(SCENARIOS) - {"a_second_start_before_the_first_is_over_is_refused"})


@pytest.mark.parametrize("name", SCENARIOS_HERE)
def test_scenario(name: str) -> None:
    """The scenarios that tests/gpu/nccl_scenarios.py runs on real GPUs pass on doubles."""
    world = World(2)

    def program(host: LoopbackCommunicator) -> None:
        driver = HostDriver()
        with nccl_of(host, driver, world) as comm:
            SCENARIOS[name](OnGpu(comm, driver))

    run_ranks(2, program, 60)


MODES = """HloModule modes, replica_count=2, num_partitions=2
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
either { a = pred[] parameter(0)
  b = pred[] parameter(1)
  ROOT s = pred[] or(a, b) }
exclusive { a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT s = s32[] xor(a, b) }
ENTRY main {
  partition = u32[] partition-id()
  replica = u32[] replica-id()
  two = u32[] constant(2)
  twice = u32[] multiply(replica, two)
  device = u32[] add(twice, partition)
  number = f32[] convert(device)
  x = f32[2,4] broadcast(number), dimensions={}
  ramp = f32[2,4] iota(), iota_dimension=1
  own = f32[2,4] add(x, ramp)
  one = u32[] constant(1)
  odd = pred[] compare(device, one), direction=EQ
  truth = pred[3] broadcast(odd), dimensions={}
  whole = s32[] convert(device)
  bits = s32[5] broadcast(whole), dimensions={}
  replicas = f32[2,4] all-reduce(own), replica_groups={{0,1}}, to_apply=sum
  both = f32[2,4] all-reduce(own), channel_id=1, replica_groups={{0},{1}}, to_apply=sum
  flat = f32[2,4] all-reduce(own), channel_id=2, replica_groups={{3,0},{2,1}}, use_global_device_ids=true, to_apply=sum
  any = pred[3] all-reduce(truth), channel_id=3, replica_groups={{0,1,2,3}}, use_global_device_ids=true, to_apply=either
  mixed = s32[5] all-reduce(bits), channel_id=4, replica_groups={{0,1,2,3}}, use_global_device_ids=true, to_apply=exclusive
  gathered = f32[2,8] all-gather(own), channel_id=5, replica_groups={{1,0},{3,2}}, use_global_device_ids=true, dimensions={1}
  part = f32[2,2] reduce-scatter(own), channel_id=6, replica_groups={{0,2},{1,3}}, use_global_device_ids=true, dimensions={1}, to_apply=sum
  swapped = f32[2,4] all-to-all(own), channel_id=7, replica_groups={{0,1}}, dimensions={1}
  moved = f32[2,4] collective-permute(own), channel_id=8, source_target_pairs={{0,1}}
  told = f32[2,4] collective-broadcast(own), replica_groups={{1,0}}
  ROOT r = (f32[2,4], f32[2,4], f32[2,4], pred[3], s32[5], f32[2,8], f32[2,2], f32[2,4], f32[2,4], f32[2,4]) tuple(replicas, both, flat, any, mixed, gathered, part, swapped, moved, told)
}
"""


def test_group_modes() -> None:
    """Groups of replicas, of partitions, of both and of devices give what the processor gives.

    Each device's results are compared with those of a loopback device.
    """
    compiled = compile_module(parse_module(MODES), 4, options=CompileOptions(partitioned=True))
    compiled.run()
    wanted = [
        [array.view().tobytes() for array in device.outputs] for device in compiled._local.devices
    ]
    saved, world = save_bytes(compiled), World(4)

    def program(host: LoopbackCommunicator) -> None:
        with on_rank(load_bytes(saved, "modes"), host, HostDriver(), world) as executable:
            for _ in range(STEPS):
                executable.run()
                (device,) = executable._local.devices
                assert [array.view().tobytes() for array in device.outputs] == wanted[host.rank]

    run_ranks(4, program, 60)
    assert (3, 0) in world.made
    assert (1, 0) in world.made
