"""Kinds of collectives: one in each file, all in the table, and prices that are those of the plans."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from importlib import import_module

import numpy as np
import pytest

from collectives.communicator.actions.array_actions import Exchange
from collectives.communicator.kinds import all_kinds
from collectives.communicator.kinds.all_gather import AllGather
from collectives.communicator.kinds.all_kinds import ALL_KINDS, KIND_NAMED
from collectives.communicator.kinds.all_reduce import ONE_SHOT_BYTES, AllReduce
from collectives.communicator.kinds.all_to_all import AllToAll
from collectives.communicator.kinds.collective_broadcast import CollectiveBroadcast
from collectives.communicator.kinds.collective_permute import CollectivePermute
from collectives.communicator.kinds.op import Collective
from collectives.communicator.kinds.ragged_all_to_all import RaggedAllToAll
from collectives.communicator.kinds.reduce_scatter import ReduceScatter
from spmd.analysis.wire import wire_weight
from spmd.device import ReductionKind
from spmd.hlo.collective_opcodes import KIND
from spmd.text.parser import parse_module
from tests.paths import ROOT

SUM = ReductionKind.SUM


def test_each_kind_has_one_file_named_as_its_instruction() -> None:
    folder = ROOT / "collectives/communicator/kinds"
    files = {path.stem for path in folder.glob("*.py")} - {"__init__", "all_kinds", "op", "traffic"}
    assert files == {kind.kind.replace("-", "_") for kind in ALL_KINDS}
    for kind in ALL_KINDS:
        assert import_module(kind.__module__).__name__.rpartition(".")[2] in files
        assert getattr(all_kinds, kind.__name__) is kind


def test_kinds_are_data_for_transports() -> None:
    """They describe actions: no library of a transport, no code generation and no program is loaded with them."""
    program = "import sys, collectives.communicator.kinds.all_kinds; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    transports = {
        f"collectives.communicator.{name}" for name in ("loopback", "mpi", "nccl", "node")
    }
    assert not loaded & {"mpi4py", "cupy", "llvmlite", "spmd.hlo", *transports}


def test_every_collective_instruction_has_a_kind() -> None:
    assert set(KIND.values()) == set(KIND_NAMED)


def test_examples_are_worked_in_the_docstrings() -> None:
    """All but the one whose operands say what moves."""
    assert [k.kind for k in ALL_KINDS if "=>" not in (k.__doc__ or "")] == ["ragged-all-to-all"]


def sent_by(collective: Collective, member: int, operands: int, results: int) -> int:
    """Return the bytes that a member sends, with one operand and one result of so many bytes."""
    actions = collective.message_actions(
        collective.group[member], [np.zeros(operands, np.uint8)], [np.zeros(results, np.uint8)]
    )
    exchanges = [action for action in actions if isinstance(action, Exchange)]
    return sum(array.nbytes for exchange in exchanges for _, array in exchange.sends)


@pytest.mark.parametrize("n", [2, 3, 8])
@pytest.mark.parametrize(
    "make",
    [
        lambda group: (AllGather(group, 0), 960, 960 * len(group)),
        lambda group: (ReduceScatter(group, SUM, 0), 960 * len(group), 960),
        lambda group: (AllToAll(group, 0), 960 * len(group), 960 * len(group)),
        lambda group: (AllReduce(group, SUM), ONE_SHOT_BYTES // 8, ONE_SHOT_BYTES // 8),
        lambda group: (CollectiveBroadcast(group), 960, 960),
        lambda group: (CollectivePermute(group, tuple(itertools.pairwise(group))), 9, 9),
    ],
)
def test_a_one_shot_exchange_is_priced_by_what_the_plan_sends(make, n: int) -> None:  # type: ignore[no-untyped-def]
    """The first member sends to each: all of S, or its n-th part; in a permute to one."""
    collective, operands, results = make(tuple(range(n)))
    traffic = collective.traffic
    size = collective.exchanged_bytes(float(operands), float(results), n)
    peers = 1 if collective.kind == "collective-permute" else n - 1
    to_each = size if traffic.sends_full_message else size / n
    assert sent_by(collective, 0, operands, results) == pytest.approx(peers * to_each)


@pytest.mark.parametrize("n", [2, 4, 7])
def test_a_large_all_reduce_sends_the_least_bytes(n: int) -> None:
    collective = AllReduce(tuple(range(n)), SUM)
    size = n << 14
    assert sent_by(collective, n - 1, size, size) == pytest.approx(
        collective.traffic.sent(n) * size
    )


CALLS = {
    AllReduce: "f32[8] all-reduce(x), replica_groups={}, to_apply=sum",
    AllGather: "f32[32] all-gather(x), replica_groups={}, dimensions={0}",
    ReduceScatter: "f32[2] reduce-scatter(x), replica_groups={}, dimensions={0}, to_apply=sum",
    AllToAll: "f32[8] all-to-all(x), replica_groups={}, dimensions={0}",
    CollectiveBroadcast: "f32[8] collective-broadcast(x), replica_groups={{0,1,2,3}}",
    CollectivePermute: "f32[8] collective-permute(x), source_target_pairs={{0,1},{1,2},{2,3}}",
}


@pytest.mark.parametrize("kind", [kind for kind in ALL_KINDS if kind is not RaggedAllToAll])
def test_members_send_what_the_wire_model_counts(kind: type[Collective]) -> None:
    """The partitioner counts bytes before there are groups of ranks; both say the same."""
    module = parse_module(f"""HloModule m, replica_count=4
sum {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}

ENTRY main {{
  x = f32[8] parameter(0)
  ROOT y = {CALLS[kind]}
}}
""")
    group = (0, 1, 2, 3)
    if kind is CollectivePermute:
        collective: Collective = CollectivePermute(group, ((0, 1), (1, 2), (2, 3)))
    else:
        collective = kind.of_attributes(0, SUM)
    counted = wire_weight(module.entry.root, 4)
    assert math.isclose(collective.sent_per_result_byte(4, 4), counted)
