"""Binding of ranks of an MPI job to GPUs, and the transport between these: NCCL, or their hosts."""

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
"""``nccl``: through NCCL, also where ranks share a GPU; ``host``: through the hosts; unset: whichever is best."""

_SHARED_GPU_VERSION = 23000
"""First version of NCCL that supports several ranks on a GPU, if a variable enables it."""

_RANKS_ON_A_GPU = 2
"""Largest number of ranks on one GPU that NCCL supports."""

_CTAS_ON_A_SHARED_GPU = 4
"""Blocks of a collective's kernel: those of all ranks on the GPU have to run at one time."""


@dataclass(frozen=True)
class RankGpu:
    """GPU of a rank, which the rank sends to the others.

    unit: identifies the GPU on its ``node`` (``cuda/identity.py``).
    nccl: version of NCCL; 0 if it cannot be used, for the reason ``trouble``.
    """

    index: int
    name: str
    unit: str
    node: str
    nccl: int
    trouble: str = ""

    @property
    def device_id(self) -> tuple[str, str]:
        return self.node, self.unit


@dataclass(frozen=True)
class GpuTransport:
    """Transport between the GPUs of a job.

    why: the reason as a sentence, if it is not plain NCCL.
    variables: by rank, environment variables of NCCL to set unless the user has set them.
    max_ctas: largest number of blocks (CTAs) of a collective's kernel; None for NCCL's choice.
    """

    through_nccl: bool
    why: str
    variables: tuple[Mapping[str, str], ...]
    max_ctas: int | None = None


def gpu_index(count: int, local_rank: int, environment: Mapping[str, str] = os.environ) -> int:
    """Return the GPU that this rank takes of the ``count`` that it sees: in turns if a node has more ranks than GPUs.

    A launcher that shows each rank its own GPU alone (Slurm's --gpus-per-task) has chosen: there is but number 0.
    """
    if count < 1:
        hidden = environment.get("CUDA_VISIBLE_DEVICES")
        said = "" if hidden is None else f" (CUDA_VISIBLE_DEVICES={hidden})"
        raise NoGpuError(f"this rank sees no GPU{said}")
    return local_rank % count


def local_rank(
    rank: int, ranks_of_node: Sequence[int], environment: Mapping[str, str] = os.environ
) -> int:
    """Return this rank's number on its node: the launcher's if it states one, else its index among the node's ranks."""
    number = local_rank_of_environment(environment)
    return list(ranks_of_node).index(rank) if number is None else number


def shared_gpus(gpus: Sequence[RankGpu]) -> list[list[int]]:
    """Return the ranks of each GPU that has several."""
    ranks: dict[tuple[str, str], list[int]] = {}
    for rank, gpu in enumerate(gpus):
        ranks.setdefault(gpu.device_id, []).append(rank)
    return [those for those in ranks.values() if len(those) > 1]


def transport_of(gpus: Sequence[RankGpu], asked: str = "") -> GpuTransport:
    """Return the transport between ``gpus``, by rank. ``asked``: COLLECTIVES_VARIABLE's value. Raises RunError if that
    is impossible."""
    if asked not in ("", "nccl", "host"):
        raise RunError(f"{COLLECTIVES_VARIABLE}={asked}: there is nccl, host")
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
    for rank, gpu in enumerate(gpus):
        if not gpu.nccl:
            return f"rank {rank} has no NCCL: {gpu.trouble}"
        if gpu.nccl != gpus[0].nccl:
            return f"rank {rank} has NCCL {version_text(gpu.nccl)}, rank 0 {version_text(gpus[0].nccl)}"
    return ""


def _describe_shared_gpus(shared: Sequence[Sequence[int]], gpus: Sequence[RankGpu]) -> str:
    first = shared[0]
    more = f", and so on for {len(shared) - 1} more" if len(shared) > 1 else ""
    return f"ranks {describe_group(tuple(first))} have one GPU, {gpus[first[0]].name}{more}"


def _shared_gpu_transport(gpus: Sequence[RankGpu], shared: Sequence[Sequence[int]]) -> GpuTransport:
    """Return the transport by NCCL with several ranks on a GPU, which is for trying NCCL with too few GPUs, not for
    speed. Raises RunError if NCCL does not support so many.
    """
    most = max(shared, key=len)
    if len(most) > _RANKS_ON_A_GPU:
        raise RunError(
            f"{COLLECTIVES_VARIABLE}=nccl: {_describe_shared_gpus([most], gpus)}; NCCL takes {_RANKS_ON_A_GPU} on one"
        )
    if gpus[0].nccl >= _SHARED_GPU_VERSION:
        variables = [{"NCCL_MULTI_RANK_GPU_ENABLE": "1"} for _ in gpus]
    else:
        # It refuses two ranks of one host on one GPU; hosts of different names meet over sockets.
        variables = [{"NCCL_HOSTID": f"rank{rank}"} for rank in range(len(gpus))]
    why = f"{_describe_shared_gpus(shared, gpus)}; {COLLECTIVES_VARIABLE}=nccl"
    return GpuTransport(True, why, tuple(variables), _CTAS_ON_A_SHARED_GPU)


def agreed_transport(world: Communicator, own: RankGpu, asked: str) -> GpuTransport:
    """Return the transport between all ranks' GPUs, equal on every rank. ``asked`` is equal on all, too."""
    gathered = world.all_gather_bytes(json.dumps(asdict(own)).encode())
    return transport_of([RankGpu(**json.loads(data)) for data in gathered], asked)


def set_where_unset(
    variables: Mapping[str, str], environment: dict[str, str] | os._Environ[str] = os.environ
) -> None:
    """Set variables that have no value, for a library that reads them later."""
    for name, value in variables.items():
        environment.setdefault(name, value)
