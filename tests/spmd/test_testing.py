from __future__ import annotations

import subprocess
import sys

import explain_modules
import pytest

import spmd
import spmd.testing


def test_a_sharding_holds_in_any_spelling() -> None:
    module = spmd.parse(explain_modules.TURNED)
    spmd.testing.assert_sharding(module, "y", "{devices=[1,4]<=[4]}")
    spmd.testing.assert_sharding(module, "y", "{devices=[1,4]0,1,2,3}", devices=4)
    spmd.testing.assert_sharding(explain_modules.GATHERED, "whole", "{replicated}")


def test_copies_may_stand_in_any_order() -> None:
    spmd.testing.assert_sharding(
        explain_modules.DISAGREEING, "y", "{devices=[2,1,2]2,0,3,1 last_tile_dim_replicate}"
    )


def test_another_sharding_fails_with_its_causes() -> None:
    with pytest.raises(AssertionError, match=r"y has .* expected .*\n.*annotation of parameter x"):
        spmd.testing.assert_sharding(explain_modules.TURNED, "y", "{devices=[4,1]<=[4]}")
    with pytest.raises(AssertionError, match="y has"):
        spmd.testing.assert_sharding(explain_modules.TURNED, "y", "{devices=[1,4]3,2,1,0}")


def test_an_unknown_instruction_fails() -> None:
    with pytest.raises(AssertionError, match="no instruction 'nobody'"):
        spmd.testing.assert_sharding(explain_modules.TURNED, "nobody", "{replicated}")


def test_collectives_are_counted_exactly() -> None:
    spmd.testing.assert_collectives(explain_modules.CONTRACTED, 2, {"all-reduce": 1})
    spmd.testing.assert_collectives(
        explain_modules.CONTRACTED, None, {"all-reduce": 1, "all-gather": 0}
    )
    for wrong in ({}, {"all-reduce": 2}, {"all-reduce": 1, "all-gather": 1}):
        with pytest.raises(AssertionError, match=r"all-reduce .* for product"):
            spmd.testing.assert_collectives(explain_modules.CONTRACTED, 2, wrong)


def test_no_collective_of_a_kind_or_for_an_op() -> None:
    module = explain_modules.CONTRACTED
    spmd.testing.assert_no_collective(module, 2, "all-gather")
    spmd.testing.assert_no_collective(module, 2, serving="x")
    for kind, serving in ((None, None), ("all-reduce", None), (None, "product")):
        with pytest.raises(AssertionError, match=r"all-reduce .* for product: partial result"):
            spmd.testing.assert_no_collective(module, 2, kind, serving=serving)
    with pytest.raises(AssertionError, match="no instruction 'nobody'"):
        spmd.testing.assert_no_collective(module, serving="nobody")


def test_bytes_of_a_whole_run_are_bounded() -> None:
    """64 x 16 floats once; 32 floats in each of a loop's five trips."""
    spmd.testing.assert_wire_bytes(explain_modules.CONTRACTED, at_most=64 * 16 * 4)
    with pytest.raises(AssertionError, match=r"sends 4,096 bytes.*\n  all-reduce .* for product"):
        spmd.testing.assert_wire_bytes(explain_modules.CONTRACTED, 2, at_most=4095)
    with pytest.raises(AssertionError, match=r"for rows: 640 bytes"):
        spmd.testing.assert_wire_bytes(explain_modules.LOOPED, at_most=639)


def test_reshards_are_bounded() -> None:
    spmd.testing.assert_no_reshard_above(explain_modules.TURNED, 4, max_bytes=1536)
    with pytest.raises(AssertionError, match=r"y from .* receives 1,536 bytes"):
        spmd.testing.assert_no_reshard_above(explain_modules.TURNED, 4, max_bytes=1535)


def test_the_helpers_come_with_the_package() -> None:
    """A fresh interpreter is used, since other imports have loaded the module in this one."""
    code = (
        "import sys, spmd; assert 'spmd.testing' not in sys.modules; spmd.testing.assert_sharding"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
