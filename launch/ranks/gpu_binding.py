"""Binding of the ranks of an MPI job to GPUs, and the transport between the GPUs: NCCL, or copies through the hosts."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from collectives.communicator.actions.device_actions import version_text
from collectives.communicator.group import describe_group
from collectives.communicator.interface import Communicator
from launch.ranks.rank_environment import local_rank_of_environment
from runtime.gpu.errors import NoGpuError
from spmd.errors import RunError
from spmd.lazy_dataclass import dataclass

COLLECTIVES_VARIABLE = "SPMD_GPU_COLLECTIVES"
"""Variable that selects the transport between GPUs.

``nccl``: NCCL, even if ranks share a GPU. ``host``: copies through the hosts. Unset: NCCL if every rank has the same
version of NCCL and its own GPU, else the hosts.
"""

_SHARED_GPU_VERSION = 23000
"""First version of NCCL that supports several ranks on a GPU (NCCL_MULTI_RANK_GPU_ENABLE)."""

_RANKS_ON_A_GPU = 2
"""Largest number of ranks on one GPU that NCCL supports."""

_CTAS_ON_A_SHARED_GPU = 4
"""Largest number of blocks (CTAs) of a collective's kernel. The blocks of all ranks on a GPU must run concurrently."""


@dataclass(frozen=True)
class RankGpu:
    """Description of a rank's GPU, which the rank sends to the other ranks.

    index: number of the GPU among those that the rank sees. unit: text that identifies the GPU on its ``node``
    (``cuda/identity.py``). nccl: version of NCCL; 0 if NCCL cannot be used, for the reason ``trouble``.
    """

    index: int
    name: str
    unit: str
    node: str
    nccl: int
    trouble: str = ""

    @property
    def device_id(self) -> tuple[str, str]:
        """Return (node, unit), which is equal for ranks that share a GPU."""
        return self.node, self.unit


@dataclass(frozen=True)
class GpuTransport:
    """Transport between the GPUs of a job.

    why: reason for the choice, unless it is NCCL with one rank per GPU.
    variables: for each rank, environment variables of NCCL to set unless the user has set them.
    max_ctas: largest number of blocks (CTAs) of a collective's kernel; None for NCCL's choice.
    registers: memory is registered with NCCL.
    """

    through_nccl: bool
    why: str
    variables: tuple[Mapping[str, str], ...]
    max_ctas: int | None = None
    registers: bool = True


def gpu_index(count: int, local_rank: int, environment: Mapping[str, str] = os.environ) -> int:
    """Return the index of this rank's GPU among the ``count`` GPUs that it sees: ``local_rank`` modulo ``count``.

    If a launcher shows each rank a single GPU (Slurm's --gpus-per-task), the index is 0. Raises NoGpuError if the rank
    sees no GPU.
    """
    if count < 1:
        hidden = environment.get("CUDA_VISIBLE_DEVICES")
        said = "" if hidden is None else f" (CUDA_VISIBLE_DEVICES={hidden})"
        raise NoGpuError(f"this rank sees no GPU{said}")
    return local_rank % count


def local_rank(
    rank: int, ranks_of_node: Sequence[int], environment: Mapping[str, str] = os.environ
) -> int:
    """Return the local rank: the number that the launcher states, else the index of ``rank`` in ``ranks_of_node``."""
    number = local_rank_of_environment(environment)
    return list(ranks_of_node).index(rank) if number is None else number


def shared_gpus(gpus: Sequence[RankGpu]) -> list[list[int]]:
    """Return the ranks of each GPU that several ranks share. ``gpus``: GPU of each rank."""
    ranks: dict[tuple[str, str], list[int]] = {}
    for rank, gpu in enumerate(gpus):
        ranks.setdefault(gpu.device_id, []).append(rank)
    return [those for those in ranks.values() if len(those) > 1]


def transport_of(gpus: Sequence[RankGpu], asked: str = "") -> GpuTransport:
    """Return the transport between ``gpus``, the GPU of each rank.

    asked: value of COLLECTIVES_VARIABLE. "" means NCCL if every rank has the same version and its own GPU, else the
    hosts. Raises RunError for another value than those documented, or if the requested transport is impossible.
    """
    if asked not in ("", "nccl", "host"):
        raise RunError(f"expected {COLLECTIVES_VARIABLE}=nccl or host, found {asked!r}")
    obstacle = _no_nccl(gpus)
    if obstacle and asked == "nccl":
        raise RunError(f"{COLLECTIVES_VARIABLE}=nccl: {obstacle}")
    shared = shared_gpus(gpus)
    if asked == "host":
        return _through_hosts(gpus, f"{COLLECTIVES_VARIABLE}=host")
    if obstacle or (shared and asked != "nccl"):
        return _through_hosts(gpus, obstacle or _describe_shared_gpus(shared, gpus))
    if shared:
        return _shared_gpu_transport(gpus, shared)
    return GpuTransport(True, "", tuple({} for _ in gpus))


def _through_hosts(gpus: Sequence[RankGpu], why: str) -> GpuTransport:
    return GpuTransport(False, why, tuple({} for _ in gpus))


def _no_nccl(gpus: Sequence[RankGpu]) -> str:
    """Return why NCCL cannot be used: a rank does not have it, or versions differ. Returns "" if it can."""
    for rank, gpu in enumerate(gpus):
        if not gpu.nccl:
            return f"rank {rank} has no NCCL: {gpu.trouble}"
        if gpu.nccl != gpus[0].nccl:
            return f"rank {rank} has NCCL {version_text(gpu.nccl)}, rank 0 {version_text(gpus[0].nccl)}"
    return ""


def _describe_shared_gpus(shared: Sequence[Sequence[int]], gpus: Sequence[RankGpu]) -> str:
    first = shared[0]
    rest = len(shared) - 1
    more = f"; {rest} more GPU{'s are' if rest > 1 else ' is'} shared" if rest else ""
    return f"ranks {describe_group(tuple(first))} share one GPU, {gpus[first[0]].name}{more}"


def _shared_gpu_transport(gpus: Sequence[RankGpu], shared: Sequence[Sequence[int]]) -> GpuTransport:
    """Return the transport by NCCL with several ranks on a GPU. It serves to try NCCL with too few GPUs, not for speed.

    Raises RunError if a GPU has more ranks than NCCL supports.
    """
    most = max(shared, key=len)
    if len(most) > _RANKS_ON_A_GPU:
        raise RunError(
            f"{COLLECTIVES_VARIABLE}=nccl: {_describe_shared_gpus([most], gpus)}; NCCL allows {_RANKS_ON_A_GPU} per GPU"
        )
    if gpus[0].nccl >= _SHARED_GPU_VERSION:
        variables = [{"NCCL_MULTI_RANK_GPU_ENABLE": "1"} for _ in gpus]
    else:
        # NCCL rejects two ranks of one host on one GPU. With different host names, they connect over sockets.
        variables = [{"NCCL_HOSTID": f"rank{rank}"} for rank in range(len(gpus))]
    why = f"{_describe_shared_gpus(shared, gpus)}; {COLLECTIVES_VARIABLE}=nccl"
    return GpuTransport(True, why, tuple(variables), _CTAS_ON_A_SHARED_GPU, registers=False)


def agreed_transport(world: Communicator, own: RankGpu, asked: str) -> GpuTransport:
    """Exchange the GPUs of all ranks, and return the transport between them, which is equal on every rank.

    own: this rank's GPU. asked: value of COLLECTIVES_VARIABLE, which must be equal on every rank. Raises the errors of
    ``transport_of``.
    """
    gathered = world.all_gather_bytes(json.dumps(asdict(own)).encode())
    return transport_of([RankGpu(**json.loads(data)) for data in gathered], asked)


def set_where_unset(
    variables: Mapping[str, str], environment: dict[str, str] | os._Environ[str] = os.environ
) -> None:
    """Set the environment variables that are unset, for a library that reads them later."""
    for name, value in variables.items():
        environment.setdefault(name, value)
