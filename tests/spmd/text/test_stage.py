"""Tests of a module's stage and number of devices, where its text does not say."""

from __future__ import annotations

import pytest

import spmd
from spmd.hlo import HloModule, Stage
from spmd.text.stage import device_count, guess_stage

SUM = "sum { x = f32[] parameter(0) y = f32[] parameter(1) ROOT z = f32[] add(x, y) }\n"
REDUCE = "ROOT r = f32[8] all-reduce(a), replica_groups={}, to_apply=sum"


def module_of(body: str, header: str = "HloModule m") -> HloModule:
    return spmd.parse(f"{header}\n{SUM}ENTRY e {{\n{body}\n}}\n")


@pytest.mark.parametrize(
    ("body", "stage"),
    [
        ("a = f32[8] parameter(0)\nROOT r = f32[8] negate(a)", Stage.LOGICAL),
        (f"a = f32[8] parameter(0)\n{REDUCE}", Stage.PARTITIONED),
        (f"a = f32[8] parameter(0), sharding={{replicated}}\n{REDUCE}", Stage.PARTITIONED),
        (
            f'p = f32[8] parameter(0)\na = f32[8] custom-call(p), custom_call_target="Sharding"\n{REDUCE}',
            Stage.LOGICAL,
        ),
        (
            f"p = f32[8] parameter(0)\na = f32[8] negate(p), sharding={{replicated}}\n{REDUCE}",
            Stage.LOGICAL,
        ),
        (
            (
                "p = f32[8] parameter(0)\na = f32[8] negate(p), "
                f'frontend_attributes={{xla.sdy.sharding="#sdy.sharding<@m, [{{}}]>"}}\n{REDUCE}'
            ),
            Stage.LOGICAL,
        ),
        (
            'p = f32[8] parameter(0)\na = f32[8] custom-call(p), custom_call_target="potrf", '
            'frontend_attributes={xla.sdy.sharding_rule="#sdy.op_sharding_rule<([i])->([i]) {i=8}>"}\n'
            + REDUCE,
            Stage.PARTITIONED,
        ),
    ],
)
def test_stage(body: str, stage: Stage) -> None:
    assert guess_stage(module_of(body)) is stage


def test_scheduled_is_said_by_the_header() -> None:
    module = module_of("ROOT a = f32[8] parameter(0)", "HloModule m, is_scheduled=true")
    assert guess_stage(module) is Stage.SCHEDULED


@pytest.mark.parametrize(
    ("header", "body", "count"),
    [
        ("HloModule m", "ROOT a = f32[8] parameter(0)", 1),
        ("HloModule m, num_partitions=4", "ROOT a = f32[8] parameter(0)", 4),
        ("HloModule m, num_partitions=4, replica_count=2", "ROOT a = f32[8] parameter(0)", 8),
        (
            'HloModule m, frontend_attributes={xla.sdy.meshes={a = #sdy.mesh<["x"=2, "y"=3]>}}',
            "ROOT a = f32[8] parameter(0), sharding={devices=[2]<=[2]}",
            6,
        ),
        ("HloModule m", "ROOT a = f32[8] parameter(0), sharding={devices=[2,2]<=[4]}", 4),
        (
            "HloModule m",
            "ROOT a = (f32[8], f32[8]) parameter(0), sharding={{replicated}, {devices=[8]<=[8]}}",
            8,
        ),
        (
            "HloModule m",
            "a = f32[8] parameter(0)\nROOT r = f32[8] all-reduce(a), replica_groups={{0,2},{1,3}}, to_apply=sum",
            4,
        ),
        (
            "HloModule m",
            "a = f32[8] parameter(0)\nROOT r = f32[8] all-reduce(a), replica_groups=[64,2]<=[128], to_apply=sum",
            128,
        ),
        (
            "HloModule m",
            (
                "a = f32[8] parameter(0)\n"
                "ROOT r = f32[8] all-reduce(a), replica_groups=mesh['x'=2,'y'=4] {'y'}, to_apply=sum"
            ),
            8,
        ),
        (
            "HloModule m",
            "a = f32[8] parameter(0)\nROOT r = f32[8] collective-permute(a), source_target_pairs={{0,2}}",
            3,
        ),
    ],
)
def test_device_count(header: str, body: str, count: int) -> None:
    assert device_count(module_of(body, header)) == count
