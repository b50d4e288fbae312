"""Choice of the engine that runs a program: ``--backend``, ``spmd.compile(backend=)``."""

from __future__ import annotations

import atexit
import functools
import os
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

from collectives.communicator.liveness.status_table import RankState
from launch.cache.cache_folder import object_folder
from launch.ranks.gpu_binding import (
    COLLECTIVES_VARIABLE,
    GpuTransport,
    RankGpu,
    agreed_transport,
    gpu_index,
    local_rank,
    set_where_unset,
)
from launch.ranks.messages import report_error, report_note
from launch.ranks.shutdown import end_by_alarm, may_report
from launch.target.backends import require_backend
from runtime.gpu.options import GpuOptions
from runtime.local_devices import Engine
from spmd.errors import RunError, UnsupportedError

if TYPE_CHECKING:
    from collectives.communicator.mpi.communicator import MpiCommunicator
    from collectives.communicator.nccl.communicator import NcclCommunicator

GRAPHS_VARIABLE = "SPMD_GPU_GRAPHS"
"""``off``: every kernel is launched by itself, no CUDA graphs."""

RANGES_VARIABLE = "SPMD_GPU_RANGES"
"""``on``: profilers' pictures name every step (NVTX), which takes some time of the host's."""

TF32_VARIABLE = "SPMD_GPU_TF32"
"""``off``: f32 products stay f32 throughout, whatever precision the program allows."""

EPILOGUES_VARIABLE = "SPMD_GPU_EPILOGUES"
"""``off``: what is computed of a matrix product is a kernel of its own, never part of the library's call."""

AUTOTUNE_VARIABLE = "SPMD_GPU_AUTOTUNE"
"""A file that keeps the fastest algorithm of each large product, or ``on`` for one in the user's cache folder.

One process measures what is missing; ranks take what is there, so that all take the same."""


def engine_for(backend: str) -> Engine | None:
    """Return the engine of ``backend``; None for the processor's cores. Raises NoGpuError if a GPU is wanted and cannot
    be used.
    """
    require_backend(backend)
    if backend == "cpu":
        return None
    from runtime.gpu.cuda.engine import cuda_engine  # deferred: only for GPUs

    return cuda_engine(gpu_options())


def gpu_options(environment: Mapping[str, str] = os.environ) -> GpuOptions:
    """Return the options of GPU execution that the environment sets."""
    return GpuOptions(
        graphs=environment.get(GRAPHS_VARIABLE) != "off",
        ranges=environment.get(RANGES_VARIABLE) == "on",
        tf32=environment.get(TF32_VARIABLE) != "off",
        cudnn=find_spec("cudnn") is not None,
        epilogues=environment.get(EPILOGUES_VARIABLE) != "off",
        triton=find_spec("triton") is not None,
        tuning_file=tuning_file(environment),
    )


def tuning_file(environment: Mapping[str, str]) -> str:
    """Return the file that keeps measured choices; nothing if none are wanted."""
    asked = environment.get(AUTOTUNE_VARIABLE, "off")
    if asked != "on":
        return "" if asked == "off" else asked
    folder = object_folder(environment)
    if folder is None:
        raise UnsupportedError(
            f"{AUTOTUNE_VARIABLE}=on: this user has no cache folder; name a file instead"
        )
    return str(folder.parent / "gpu_tuning.json")


@functools.cache
def gpu_of_rank(world: MpiCommunicator) -> RankGpu:
    """Return the GPU of this rank, without communication. Raises NoGpuError if there is none."""
    from collectives.communicator.nccl.api import load_nccl
    from runtime.gpu.availability import require_gpu
    from runtime.gpu.cuda.identity import identity_of

    node = world.nodes.own
    index = gpu_index(require_gpu(), local_rank(world.rank, node.ranks))
    identity = identity_of(index)
    version, trouble = 0, ""
    try:
        version = load_nccl().version()
    except RunError as error:
        trouble = str(error)
    where = f"node of rank {node.ranks[0]}"
    return RankGpu(index, identity.name, identity.unit, where, version, trouble)


@functools.cache
def engine_of_ranks(world: MpiCommunicator) -> Engine:
    """Return the engine with this rank's GPU and the transport to the others. All ranks call it when all know their
    GPUs.

    Raises RunError on every rank if they cannot communicate as requested.
    """
    from runtime.gpu.cuda.engine import cuda_engine_on

    own = gpu_of_rank(world)
    transport = agreed_transport(world, own, os.environ.get(COLLECTIVES_VARIABLE, ""))
    set_where_unset(transport.variables[world.rank])
    if transport.why and world.rank == 0 and world.size > 1:
        way = "NCCL" if transport.through_nccl else "the hosts"
        report_note(f"collectives between GPUs use {way}: {transport.why}")
    through_nccl = transport.through_nccl and world.size > 1
    # One communicator for all programs, because creating one takes seconds.
    collectives = functools.cache(lambda: _nccl(world, transport) if through_nccl else None)
    return cuda_engine_on(own.index, collectives, gpu_options())


def _nccl(world: MpiCommunicator, transport: GpuTransport) -> NcclCommunicator:
    from collectives.communicator.nccl.api import load_nccl
    from collectives.communicator.nccl.communicator import NcclCommunicator
    from collectives.communicator.nccl.cuda_memory import CudaMemory

    made = NcclCommunicator(
        world,
        load_nccl(),
        CudaMemory(),
        timeout_seconds=world.timeout_seconds,
        max_ctas=transport.max_ctas,
        registers=transport.registers,
        notify=report_note,
        give_up=functools.partial(_give_up, world),
    )
    atexit.register(_leave, world, made)
    return made


def _leave(world: MpiCommunicator, collectives: NcclCommunicator) -> None:
    """End the use of NCCL with the process.

    The end waits for other ranks. A rank that still waits for this one must see that this one has left.
    """
    world.set_rank_state(RankState.LEFT)
    collectives.leave()


def _give_up(world: MpiCommunicator, message: str) -> None:
    """End this process, one of whose threads does not come back from NCCL."""
    if may_report(world):
        report_error(message)
    end_by_alarm()
    world.abort(RunError.exit_code)
