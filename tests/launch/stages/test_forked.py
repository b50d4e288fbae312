"""Two compilations of a module that differ in the groups of passes on collectives: what they share is done once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from launch.collective_groups import OVERLAPPING
from launch.options import CompileOptions
from launch.pipeline import Compilation, forked, later_stages, stages
from spmd.analysis.structure import StructuralKeys
from spmd.hlo import HloModule
from spmd.machine.named import machine_named
from spmd.text.sources.load import load
from tests.paths import CASES

OPTIONS = CompileOptions(machine=machine_named("tcp-cluster"))
WAITING = replace(OPTIONS, without=OVERLAPPING)


def compiled(module: HloModule, options: CompileOptions) -> Compilation:
    *_, (_, compilation) = stages(module, None, options)
    return compilation


def last(compilation: Compilation, options: CompileOptions) -> Compilation:
    *_, (_, done) = later_stages(compilation, options)
    return done


@pytest.mark.parametrize("name", ["kv_decode_dp2tp2", "mlp_fsdp8"])
def test_both_compilations_are_those_of_their_own_options(name: str) -> None:
    module = load(CASES / name / "module.hlo")
    one, other = forked(module, None, OPTIONS, WAITING)
    assert str(last(one, OPTIONS).module) == str(compiled(module, OPTIONS).module)
    keys = StructuralKeys()
    made, expected = (
        keys.key(x.module.entry) for x in (last(other, WAITING), compiled(module, WAITING))
    )
    assert made == expected


def test_what_is_shared_runs_once() -> None:
    module = load(CASES / "mlp_dp4tp2" / "module.hlo")
    one, other = forked(module, None, OPTIONS, WAITING)
    assert one.module is not other.module
    assert str(one.module) == str(other.module)
    assert one.optimized == other.optimized
    assert one.optimized.done > 0
    assert other.overlap is None
    assert last(one, OPTIONS).overlap is not None
