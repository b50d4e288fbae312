"""all-to-all-pipeliner by price: a mixture of experts on a GPU's links, never where it does not pay."""

from __future__ import annotations

import pytest

from collectives.passes.all_to_all_pipeliner import AllToAllPipeliner
from spmd.hlo import HloInstruction, HloModule, Opcode, Stage
from spmd.passes.options import PassOptionError
from spmd.text.parser import parse_module

TEXT = """HloModule t, num_partitions=8
ENTRY main {
  tokens = bf16[4096,4096] parameter(0)
  mask = bf16[4096,8,CAP] parameter(1)
  up = bf16[4096,WIDE] parameter(2)
  down = bf16[WIDE,4096] parameter(3)
  sent = bf16[8,CAP,4096] dot(mask, tokens), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  there = bf16[8,CAP,4096] all-to-all(sent), channel_id=1, replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}
  wide = bf16[8,CAP,WIDE] dot(there, up), lhs_contracting_dims={2}, rhs_contracting_dims={0}
  done = bf16[8,CAP,4096] dot(wide, down), lhs_contracting_dims={2}, rhs_contracting_dims={0}
  back = bf16[8,CAP,4096] all-to-all(done), channel_id=2, replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}
  last = bf16[4096,4096] dot(mask, back), lhs_contracting_dims={1,2}, rhs_contracting_dims={0,1}
  OTHER
}
"""
ALONE = "ROOT r = (bf16[4096,4096]) tuple(last)"
BESIDE = """one = bf16[4096,4096] dot(tokens, tokens), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  two = bf16[4096,4096] dot(one, tokens), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = (bf16[4096,4096], bf16[4096,4096]) tuple(last, two)"""


def module(capacity: int, other: str = ALONE) -> HloModule:
    text = TEXT.replace("CAP", str(capacity)).replace("WIDE", "14336").replace("OTHER", other)
    found = parse_module(text)
    found.stage = Stage.PARTITIONED
    return found


def exchanges(found: HloModule) -> list[HloInstruction]:
    return list(found.entry.with_opcode(Opcode.ALL_TO_ALL))


def test_experts_are_computed_while_others_tokens_come() -> None:
    """Both all-to-alls are cut alike, and terms of the last sum are added before it is rounded."""
    found = module(1024)
    assert AllToAllPipeliner(machine="dgx-h100").run(found)
    pieces = exchanges(found)
    assert len(pieces) >= 4
    assert len({x.dims for x in pieces}) == 1
    assert len({getattr(x.attrs, "channel_id", None) for x in pieces}) == len(pieces)
    (rounded,) = found.entry.with_opcode(Opcode.CONVERT)
    assert str(rounded.operand(0).shape).startswith("f32[4096,4096]")


def test_slower_links_ask_for_more_pieces() -> None:
    """Less is left to be sent when there is nothing to compute beside it."""
    counts = []
    for machine in ("dgx-h100", "dgx-h100{links=0.25}"):
        found = module(1024)
        AllToAllPipeliner(machine=machine).run(found)
        counts.append(len(exchanges(found)))
    assert counts[0] < counts[1]


@pytest.mark.parametrize(
    ("capacity", "other", "machine"),
    [
        (4, ALONE, "dgx-h100"),
        (1023, ALONE, "dgx-h100"),
        (1024, BESIDE, "dgx-h100"),
        (1024, ALONE, "cpu-avx512"),
    ],
)
def test_what_does_not_pay_stays(capacity: int, other: str, machine: str) -> None:
    """Small pieces, none at all, other products to hide it, and processors that move the bytes themselves."""
    same = module(capacity, other)
    text = str(same)
    assert not AllToAllPipeliner(machine=machine).run(same)
    assert str(same) == text


def test_one_piece_is_none() -> None:
    with pytest.raises(PassOptionError, match="2 or more"):
        AllToAllPipeliner(pieces=1)
