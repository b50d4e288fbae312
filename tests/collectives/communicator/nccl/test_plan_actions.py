"""Every kind, with results on operands in every way that is allowed, action by action among members with NCCL's double."""

from __future__ import annotations

import numpy as np
import pytest

from collectives.communicator.actions.device_actions import (
    AllGatherCall,
    AllReduceCall,
    DeviceArray,
)
from collectives.communicator.kinds.all_gather import AllGather
from collectives.communicator.kinds.all_reduce import AllReduce
from collectives.communicator.kinds.all_to_all import AllToAll
from collectives.communicator.kinds.collective_broadcast import CollectiveBroadcast
from collectives.communicator.kinds.collective_permute import CollectivePermute
from collectives.communicator.kinds.ragged_all_to_all import RaggedAllToAll
from collectives.communicator.kinds.reduce_scatter import ReduceScatter
from collectives.communicator.nccl.plan_actions import plan_actions
from spmd.device import ReductionKind
from tests.collectives.communicator.member_cases import cases
from tests.collectives.communicator.member_world import Arrays, Case
from tests.collectives.communicator.nccl.device_ranks import OnArrays, run_nccl

COUNTS = (1, 2, 3, 4)
NAMES = [n for n, case in cases(2).items() if not case.together and not n.startswith("ragged")]
VERSION = 23004


def buffers(case: Case, member: int) -> tuple[Arrays, Arrays]:
    """Operands and results as the case lays them on each other."""
    operands = [np.empty_like(one) for one in case.operands(member, 0)]
    results = case.results()
    for result, operand in case.aliases.items():
        results[result] = operands[operand]
    if case.tiles:
        for k, (small, large) in enumerate(zip(operands, results, strict=True)):
            if small.size > large.size:
                results[k] = small.reshape(-1)[member * large.size :][: large.size].reshape(
                    large.shape
                )
            else:
                operands[k] = large.reshape(-1)[member * small.size :][: small.size].reshape(
                    small.shape
                )
    return operands, results


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", NAMES)
def test_kind(name: str, count: int) -> None:
    case = cases(count)[name]

    def program(comm: OnArrays) -> None:
        group = case.collectives[0].group
        if comm.rank not in group:
            comm.connect()
            return
        member = group.index(comm.rank)
        collective = case.collectives[member]
        operands, results = buffers(case, member)
        bound = comm.bind(collective, name, operands, results)
        comm.connect()
        for run in range(2):
            for operand, value in zip(operands, case.operands(member, run), strict=True):
                np.copyto(operand, value)
            bound.complete()
            want = case.results()
            everyone = [case.operands(m, run) for m in range(len(group))]
            collective.deliver(collective.combine(everyone), member, want)
            for result, right in zip(results, want, strict=True):
                assert result.tobytes() == right.tobytes()

    run_nccl(count, program)


def array(pointer: int, shape: tuple[int, ...], dtype: object = np.float32) -> DeviceArray:
    return DeviceArray(pointer, np.dtype(dtype), shape)  # type: ignore[call-overload]


def test_an_all_reduce_in_place_is_one_call() -> None:
    one = array(4096, (5, 3))
    collective = AllReduce((0, 1), ReductionKind.SUM)
    actions, scratch = plan_actions(collective, 0, [one], [one], VERSION)
    (call,) = actions.calls
    assert isinstance(call, AllReduceCall)
    assert (call.send, call.receive, call.count) == (4096, 4096, 15)
    assert actions.before == actions.after == ()
    assert scratch == 0


def test_an_all_gather_from_its_own_tile_is_one_call() -> None:
    result = array(4096, (4, 3))
    tile = array(4096 + 24, (2, 3))
    actions, scratch = plan_actions(AllGather((0, 1), 0), 1, [tile], [result], VERSION)
    assert actions.calls == (AllGatherCall(tile.pointer, result.pointer, 24),)
    assert actions.before == actions.after == ()
    assert scratch == 0


def test_complex_sums_are_sums_of_pairs() -> None:
    one = array(4096, (5,), np.complex64)
    actions, _ = plan_actions(AllReduce((0, 1), ReductionKind.SUM), 0, [one], [one], VERSION)
    (call,) = actions.calls
    assert isinstance(call, AllReduceCall)
    assert call.count == 10


@pytest.mark.parametrize(
    ("collective", "dtype", "version", "reason"),
    [
        (AllReduce((0, 1), ReductionKind.XOR), np.int32, VERSION, "NCCL has no xor of s32"),
        (AllReduce((0, 1), ReductionKind.XOR), np.bool_, VERSION, "NCCL has no xor of pred"),
        (AllReduce((0, 1), ReductionKind.PRODUCT), np.complex64, VERSION, "NCCL has no product of c64"),
        (ReduceScatter((0, 1), ReductionKind.SUM, 0), np.int16, VERSION, "NCCL has no type s16"),
        (AllReduce((0, 1), ReductionKind.SUM), "float8_e5m2", 22005, "NCCL 2.20.5 has no type f8e5m2: 2.24 has"),
        (AllReduce((0, 1), ReductionKind.SUM), "float8_e5m2", VERSION, None),
        (AllReduce((0,), ReductionKind.XOR), np.int32, VERSION, "NCCL has no xor of s32"),
        (RaggedAllToAll((0, 1)), np.int32, VERSION, "its sizes lie in the data"),
        (AllGather((0, 1), 0), np.int16, VERSION, None),
        (AllToAll((0, 1), 0), np.complex128, VERSION, None),
        (CollectiveBroadcast((0, 1)), np.bool_, VERSION, None),
        (CollectivePermute((0, 1), ((0, 1),)), np.uint16, VERSION, None),
    ],
)  # fmt: skip
def test_what_nccl_cannot_do_is_said(collective, dtype, version, reason) -> None:  # type: ignore[no-untyped-def]
    import ml_dtypes

    kind = getattr(ml_dtypes, dtype) if isinstance(dtype, str) else dtype
    assert collective.nccl_obstacle([np.dtype(kind)], version) == reason
