"""exchange-pipeliner by price: a mixture of experts on a GPU's links, never where it does not pay."""

from __future__ import annotations

from dataclasses import replace

import pytest

from collectives.passes.all_reduce_combiner import AllReduceCombiner
from collectives.passes.exchange_pipeliner import ExchangePipeliner
from collectives.passes.windowed_cost import WindowedCostModel
from collectives.passes.windowed_einsum import WindowedEinsum
from spmd.hlo import HloInstruction, HloModule, Opcode, Stage
from spmd.machine.named import machine_named
from spmd.passes.options import PassOptionError
from spmd.text.parser import parse_module

#: A machine whose products take as long in pieces as whole ones, so that links alone decide.
UNTILED = replace(machine_named("dgx-h100"), tiled=None)

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
    assert ExchangePipeliner(machine=UNTILED).run(found)
    pieces = exchanges(found)
    assert len(pieces) >= 4
    assert len({x.dims for x in pieces}) == 1
    assert len({getattr(x.attrs, "channel_id", None) for x in pieces}) == len(pieces)
    (rounded,) = found.entry.with_opcode(Opcode.CONVERT)
    assert str(rounded.operand(0).shape).startswith("f32[4096,4096]")


def test_slower_links_ask_for_more_pieces() -> None:
    """Less is left to be sent when there is nothing to compute beside it."""
    counts = []
    for machine in (UNTILED, UNTILED.with_links(0.25)):
        found = module(1024)
        ExchangePipeliner(machine=machine).run(found)
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
    assert not ExchangePipeliner(machine=machine_named(machine)).run(same)
    assert str(same) == text


REDUCED = """HloModule t, num_partitions=2
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
ENTRY main {
  x = f32[512,2048] parameter(0)
  up = f32[2048,1024] parameter(1)
  down = f32[1024,2048] parameter(2)
  wide = f32[512,1024] dot(x, up), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  half = f32[512,2048] dot(wide, down), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  sum = f32[512,2048] all-reduce(half), channel_id=1, use_global_device_ids=true, replica_groups={{0,1}}, to_apply=add
  ROOT back = f32[512,1024] dot(sum, down), lhs_contracting_dims={1}, rhs_contracting_dims={1}
}
"""


def test_an_all_reduce_is_under_way_while_other_rows_are_multiplied() -> None:
    """The link is slow, and more products than the nearest one are cut.

    The first rows are on their way before the last ones are begun.
    """
    found = parse_module(REDUCED)
    found.stage = Stage.PARTITIONED
    assert ExchangePipeliner(machine=machine_named("tcp-cluster{links=0.05,node=1}")).run(found)
    sums = list(found.entry.with_opcode(Opcode.ALL_REDUCE))
    rows = {x.dims for x in found.entry.with_opcode(Opcode.DOT)}
    assert len(sums) >= 2
    assert {x.dims for x in sums} == {(512 // len(sums), 2048)}
    assert rows == {(512 // len(sums), 1024), (512 // len(sums), 2048)}


@pytest.mark.parametrize(
    ("collective", "cut"),
    [
        ("all-reduce(x), to_apply=add", (2, 6)),
        ("all-gather(x), dimensions={0}", (8, 3)),
        ("reduce-scatter(x), dimensions={1}, to_apply=add", (2, 3)),
        ("all-to-all(x), dimensions={0}", (4, 3)),
    ],
)
def test_pieces_are_of_dimensions_that_a_collective_leaves_alone(
    collective: str, cut: tuple[int, ...]
) -> None:
    result = {"all-gather": "[8,6]", "reduce-scatter": "[4,3]"}.get(
        collective.split("(")[0], "[4,6]"
    )
    text = (
        REDUCED.split("ENTRY", maxsplit=1)[0]
        + f"""ENTRY main {{
  x = f32[4,6] parameter(0)
  ROOT r = f32{result} {collective}, channel_id=1, use_global_device_ids=true, replica_groups={{{{0,1}}}}
}}
"""
    )
    if "all-to-all" in collective:
        text = text.replace(", use_global_device_ids=true", "")
    found = parse_module(text)
    found.stage = Stage.PARTITIONED
    assert ExchangePipeliner(pieces=2).run(found)
    root = found.entry.root
    assert [x.dims for x in root.operands] == [cut, cut]


def test_one_piece_is_none() -> None:
    with pytest.raises(PassOptionError, match="2 or more"):
        ExchangePipeliner(pieces=1)


def test_pieces_do_not_become_one_again() -> None:
    """A combiner joins what does not wait for one another, as pieces never do."""
    found = parse_module(
        """HloModule g, num_partitions=2
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
ENTRY main {
  x = f32[512,1024] parameter(0)
  w = f32[1024,1024] parameter(1)
  y = f32[512,1024] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  all = f32[512,1024] all-reduce(y), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=sum
  ROOT r = f32[512,1024] dot(all, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
    )
    found.stage = Stage.PARTITIONED
    assert ExchangePipeliner(pieces=4).run(found)
    assert len(list(found.entry.with_opcode(Opcode.ALL_REDUCE))) == 4
    AllReduceCombiner().run(found)
    assert len(list(found.entry.with_opcode(Opcode.ALL_REDUCE))) == 4


#: Two layers, one after the other, each between two collectives; and products that nobody needs.
LAYERS = """HloModule layers, num_partitions=2
sum { x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT s = f32[] add(x, y) }
ENTRY main {
  x = f32[4,256,256] parameter(0)
  w = f32[256,256] parameter(1)
  u = f32[SIDE,SIDE] parameter(2)
  a = f32[4,256,256] dot(x, w), lhs_contracting_dims={2}, rhs_contracting_dims={0}
  b = f32[4,256,256] all-reduce(a), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=sum
  c = f32[4,256,256] dot(b, w), lhs_contracting_dims={2}, rhs_contracting_dims={0}
  d = f32[4,256,256] all-reduce(c), channel_id=2, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=sum
  e = f32[4,256,256] dot(d, w), lhs_contracting_dims={2}, rhs_contracting_dims={0}
  beside = f32[SIDE,SIDE] dot(u, u), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = (f32[4,256,256], f32[SIDE,SIDE]) tuple(e, beside)
}
"""


@pytest.mark.parametrize(("side", "needing"), [(64, 2), (900, 2), (2048, 0)])
def test_work_beside_a_chain_counts_once(side: int, needing: int) -> None:
    """Work enough for one of two dependent collectives leaves both in need; work enough for both leaves none."""
    found = parse_module(LAYERS.replace("SIDE", str(side)))
    found.stage = Stage.PARTITIONED
    machine = machine_named("tcp-cluster{links=0.1,node=1}")
    cost_model = WindowedCostModel(found, machine)
    sums = list(found.entry.with_opcode(Opcode.ALL_REDUCE))
    beside = cost_model.computing([found.entry.root.operand(1)])
    if side == 900:
        assert cost_model.sending(sums[:1]) < beside < cost_model.sending(sums)
    assert len(cost_model.needing(found.entry, sums)) == needing


def test_what_no_product_waits_for_is_no_part_of_a_chain() -> None:
    """Gradients: each is sent when it is there, and hidden by what is computed of the others."""
    text = LAYERS.replace("SIDE", "900").replace("tuple(e, beside)", "tuple(d, beside)")
    text = text.replace("dot(b, w)", "dot(x, w)").replace(
        "ROOT r = (f32[4,256,256],", "ROOT r = (f32[4,256,256], f32[4,256,256],"
    )
    text = text.replace("tuple(d, beside)", "tuple(b, d, beside)")
    text = "\n".join(line for line in text.splitlines() if not line.startswith("  e = "))
    found = parse_module(text)
    found.stage = Stage.PARTITIONED
    cost_model = WindowedCostModel(found, machine_named("tcp-cluster{links=0.1,node=1}"))
    assert cost_model.needing(found.entry, list(found.entry.with_opcode(Opcode.ALL_REDUCE))) == []


GATHERED = """HloModule t, num_partitions=2
ENTRY main {
  x = f32[1024,1024] parameter(0)
  up = f32[1024,1024] parameter(1)
  down = f32[1024,1024] parameter(2)
  rows = f32[2048,1024] all-gather(x), channel_id=1, use_global_device_ids=true, replica_groups={{0,1}}, dimensions={0}
  wide = f32[2048,1024] dot(rows, up), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  OTHER
}
"""
ONE = "ROOT r = (f32[2048,1024]) tuple(wide)"
CHAINED = """half = f32[2048,1024] dot(wide, down), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  there = f32[1024,1024] reduce-scatter(half), channel_id=2, use_global_device_ids=true, replica_groups={{0,1}}, dimensions={0}, to_apply=add
  again = f32[2048,1024] all-gather(there), channel_id=3, use_global_device_ids=true, replica_groups={{0,1}}, dimensions={0}
  one = f32[2048,1024] dot(again, up), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  two = f32[2048,1024] dot(again, down), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = (f32[2048,1024], f32[2048,1024]) tuple(one, two)"""


@pytest.mark.parametrize(("other", "pieces"), [(ONE, False), (CHAINED, True)])
def test_pieces_or_windows_whatever_gains_more(other: str, pieces: bool) -> None:
    """A window's first part need not be sent; of what two products read there is none, but pieces."""
    machine = "tcp-cluster{links=0.04,node=1}"
    alone, before_windows = (parse_module(gathered(other)) for _ in range(2))
    for found in (alone, before_windows):
        found.stage = Stage.PARTITIONED
    assert ExchangePipeliner(machine=machine_named(machine)).run(alone)
    assert (
        ExchangePipeliner(machine=machine_named(machine), windows=True).run(before_windows)
        is pieces
    )
    if not pieces:
        assert WindowedEinsum(machine=machine_named(machine)).run(before_windows)


def gathered(other: str) -> str:
    add = (
        "add {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT s = f32[] add(a, b)\n}\n"
    )
    return GATHERED.replace("ENTRY", f"{add}ENTRY").replace("OTHER", other)
