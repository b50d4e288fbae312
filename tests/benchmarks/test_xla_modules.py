"""Tests of benchmarks.xla_modules: the devices that a module is for, and whether its result is defined."""

from __future__ import annotations

import numpy as np
import pytest

import spmd
from benchmarks.xla_modules.arrangement import Arrangement, arrangement_of, manual_text
from benchmarks.xla_modules.fitting import fitting
from benchmarks.xla_modules.soundness import free_choice, nan_choice, unsound
from spmd.hlo.opcode import Opcode
from spmd.sharding import HloSharding

SUM = "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }\n"


def module(body: str, header: str = "") -> spmd.HloModule:
    return spmd.parse(f"HloModule m{header}\n{SUM}ENTRY e {{ x = f32[4] parameter(0) {body} }}")


def reduced(attributes: str, header: str = "") -> spmd.HloModule:
    return module(f"ROOT r = f32[4] all-reduce(x), to_apply=add, {attributes}", header)


@pytest.mark.parametrize(
    ("program", "arrangement"),
    [
        (module("ROOT r = f32[4] negate(x)"), Arrangement(1, 1, per_device=True)),
        (reduced("replica_groups={{0,1}}"), Arrangement(2, 1, per_device=True)),
        (
            reduced("replica_groups={{0,1},{2,3}}, channel_id=1, use_global_device_ids=true"),
            Arrangement(1, 4, per_device=True),
        ),
        (
            reduced(
                "replica_groups={{0,3},{1,2}}, channel_id=1, use_global_device_ids=true",
                ", replica_count=2",
            ),
            Arrangement(2, 2, per_device=True),
        ),
        (
            module("ROOT r = f32[8] all-gather(x), dimensions={0}, replica_groups={}"),
            Arrangement(2, 1, per_device=True),
        ),
        (
            module(
                "ROOT r = f32[8] all-gather(x), dimensions={0}, replica_groups={{0}}, channel_id=1"
            ),
            Arrangement(1, 2, per_device=True),
        ),
        (
            module("ROOT r = f32[1] reduce-scatter(x), dimensions={0}, to_apply=add"),
            Arrangement(4, 1, per_device=True),
        ),
        (
            module(
                "ROOT r = f32[4] collective-permute(x), channel_id=1, source_target_pairs={{0,2}}"
            ),
            Arrangement(1, 3, per_device=True),
        ),
        (
            module("y = f32[4] negate(x), sharding={devices=[2]0,1} ROOT r = f32[4] negate(y)"),
            Arrangement(1, 2, per_device=False),
        ),
    ],
)
def test_the_number_of_devices_is_read_from_what_a_text_says(
    program: spmd.HloModule, arrangement: Arrangement
) -> None:
    assert arrangement_of(program) == arrangement


def test_one_devices_program_reaches_xla_with_everything_manual() -> None:
    program = reduced("replica_groups={{0,1}}, channel_id=1")
    marked = spmd.parse(manual_text(program, loops=False))
    assert {x.sharding for x in marked.all_instructions()} == {HloSharding.manual()}


@pytest.mark.parametrize("loops", [False, True])
def test_loops_are_marked_manual_or_not(*, loops: bool) -> None:
    marked = spmd.parse(manual_text(spmd.parse(LOOP.format(next="m", start=0)), loops=loops))
    unmarked = [x.opcode for x in marked.all_instructions() if x.sharding is None]
    assert unmarked == ([] if loops else [Opcode.WHILE])


HIGHEST = """HloModule m
top {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] {}(a, b) }}
ENTRY e {{ x = f32[2,4] parameter(0) i = f32[] constant(0)
  ROOT r = f32[2] reduce(x, i), dimensions={{1}}, to_apply=top }}
"""
LOOP = """HloModule m
body {{ s = (s32[], f32[4]) parameter(0) n = s32[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1 one = s32[] constant(1) m = s32[] add(n, one)
  none = s32[] constant(0) still = s32[] add(n, none) y = f32[4] negate(x) ROOT t = (s32[], f32[4]) tuple({next}, y) }}
more {{ s = (s32[], f32[4]) parameter(0) n = s32[] get-tuple-element(s), index=0
  three = s32[] constant(3) ROOT p = pred[] compare(n, three), direction=LT }}
ENTRY e {{ x = f32[4] parameter(0) n = s32[] constant({start}) t = (s32[], f32[4]) tuple(n, x)
  w = (s32[], f32[4]) while(t), condition=more, body=body ROOT r = f32[4] get-tuple-element(w), index=1 }}
"""


@pytest.mark.parametrize(
    ("following", "start", "ends"),
    [("m", 0, True), ("n", 5, True), ("n", 0, False), ("still", 0, False)],
)
def test_a_loop_without_end_is_unsound(following: str, start: int, *, ends: bool) -> None:
    reason = unsound(spmd.parse(LOOP.format(next=following, start=start)))
    assert reason == ("" if ends else "an endless loop")


def test_unmarked_sizes_and_elided_constants_are_unsound() -> None:
    sized = "n = s32[] parameter(1) ROOT r = {} set-dimension-size(x, n), dimensions={{0}}"
    assert not unsound(module(sized.format("f32[<=4]")))
    assert "static dimension" in unsound(module(sized.format("f32[4]")))
    assert "elides" in unsound(module("c = f32[4] constant({...}) ROOT r = f32[4] add(x, c)"))


def test_propagation_flags_have_to_fit_the_parameters() -> None:
    flags = ", allow_spmd_sharding_propagation_to_parameters={true,true}"
    assert "flags" in unsound(module("ROOT r = f32[4] negate(x)", flags))


def test_a_fused_bitcast_to_another_layout_does_not_reach_xla() -> None:
    text = """HloModule m
f {{ a = f32[2,4]{{1,0}} parameter(0) ROOT b = f32[4,2]{layout} bitcast(a) }}
ENTRY e {{ x = f32[2,4]{{1,0}} parameter(0) ROOT r = f32[4,2]{layout} fusion(x), kind=kLoop, calls=f }}"""
    assert not unsound(spmd.parse(text.format(layout="{1,0}")))
    assert "layouts" in unsound(spmd.parse(text.format(layout="{0,1}")))


def test_windows_that_do_not_start_from_the_neutral_element_are_a_free_choice() -> None:
    window = "i = f32[] constant({}) ROOT r = f32[4] reduce-window(x, i), window={{size=2 pad=1_0}}, to_apply=add"
    assert not free_choice(module(window.format(0)))
    assert "neutral" in free_choice(module(window.format(1)))


def test_reductions_that_do_not_start_from_the_neutral_element_are_a_free_choice() -> None:
    total = "i = f32[] constant({}) ROOT r = f32[] reduce(x, i), dimensions={{0}}, to_apply=add"
    assert not free_choice(module(total.format(0)))
    assert "neutral" in free_choice(module(total.format(2)))


def test_inputs_fit_what_the_program_is_defined_for() -> None:
    program = module(
        "n = s32[] parameter(1) i = f32[] parameter(2) "
        "d = f32[<=4] set-dimension-size(x, n), dimensions={0} "
        "ROOT r = f32[] reduce(d, i), dimensions={0}, to_apply=add"
    )
    arrays = [np.ones(4, np.float32), np.asarray(7, np.int32), np.asarray(3, np.float32)]
    assert [x.tolist() for x in fitting(program, arrays)[1:]] == [4, 0]


@pytest.mark.parametrize(
    ("start", "done", "allowed"),
    [
        ("f32[4] all-reduce-start(x), to_apply=add", "all-reduce", True),
        ("(f32[4], f32[4]) all-reduce-start(x), to_apply=add", "all-reduce", False),
        ("(f32[4], f32[4]) collective-permute-start(x), {}", "collective-permute", True),
        ("f32[4] collective-permute-start(x), {}", "collective-permute", False),
        ("f32[8] all-gather-start(x), dimensions={{0}}", "all-gather", False),
    ],
)
def test_starts_of_collectives_have_the_shape_that_xlas_verifier_asks_for(
    start: str, done: str, allowed: bool
) -> None:
    size = 8 if done == "all-gather" else 4
    written = start.format("source_target_pairs={{0,1}}")
    program = module(f"s = {written} ROOT r = f32[{size}] {done}-done(s)")
    assert bool(unsound(program)) is not allowed


def test_an_all_reduce_keeps_the_element_type() -> None:
    body = "y = bf16[4] convert(x) ROOT r = f32[4] all-reduce(y), to_apply=add"
    assert "verifier" in unsound(module(body))


def test_a_wrap_has_as_many_elements_as_it_says() -> None:
    call = 'ROOT r = f32[{}] custom-call(x), custom_call_target="_SPMDInternalOp_Wrap", backend_config="dimension=0,left_amount=1,right_amount=2"'
    assert not unsound(module(call.format(7)))
    assert "Wrap" in unsound(module(call.format(8)))


def test_a_result_of_each_devices_own_is_no_global_array() -> None:
    program = """HloModule m
ENTRY e {{
  x = f32[4] parameter(0), sharding={{devices=[2]<=[2]}}
  s = f32[2] custom-call(x), custom_call_target="SPMDFullToShardShape", sharding={{manual}}
  {} }}"""
    own = program.format("ROOT t = (f32[2]) tuple(s), sharding={{manual}}")
    joined = program.format(
        'ROOT j = f32[4] custom-call(s), custom_call_target="SPMDShardToFullShape", sharding={devices=[2]<=[2]}'
    )
    assert "global array" in unsound(spmd.parse(own))
    assert not unsound(spmd.parse(joined))


def test_a_maximum_over_nan_is_a_free_choice_where_the_result_is_nan() -> None:
    greatest = HIGHEST.format("maximum")
    values = [np.array([1, np.nan], np.float32)]
    assert "NaN" in nan_choice(spmd.parse(greatest), values, agreeing=[np.array([True, False])])
    assert not nan_choice(spmd.parse(greatest), values, agreeing=[np.array([False, False])])
    assert not nan_choice(spmd.parse(greatest), values, agreeing=[np.array([False, True])])
    assert not nan_choice(
        spmd.parse(HIGHEST.format("add")), values, agreeing=[np.array([True, False])]
    )


def test_shardings_of_a_devices_program_name_its_devices() -> None:
    program = spmd.parse(f"""HloModule m
{SUM}ENTRY e {{ x = f32[4] parameter(0), sharding={{devices=[2]<=[2]}}
  ROOT r = f32[4] all-reduce(x), to_apply=add, replica_groups={{}}, sharding={{devices=[2]<=[2]}} }}""")
    assert arrangement_of(program) == Arrangement(1, 2, per_device=True)


def test_groups_of_replicas_are_no_partitions() -> None:
    groups = "replica_groups={{0},{1}}, channel_id=1, to_apply=add"
    body = f"y = f32[4] all-reduce(x), {groups} ROOT r = f32[4] negate(y), sharding={{maximal device=0}}"
    assert arrangement_of(module(body)) == Arrangement(2, 1, per_device=True)


def test_replicas_of_a_program_without_shardings_have_inputs_of_their_own() -> None:
    gathered = "ROOT r = f32[16] all-gather(x), dimensions={0}, replica_groups={}"
    header = ", replica_count=4, num_partitions=2"
    assert arrangement_of(module(gathered, header)) == Arrangement(4, 2, per_device=True)


@pytest.mark.parametrize(
    ("declared", "wanted"),
    [
        ("indices_are_sorted=true, unique_indices=true", [[0], [2], [4]]),
        ("indices_are_sorted=true", [[1], [5], [5]]),
        ("unique_indices=false", [[5], [1], [5]]),
    ],
)
def test_indices_are_what_a_scatter_declares(declared: str, wanted: list[list[int]]) -> None:
    program = spmd.parse(f"""HloModule m
{SUM}ENTRY e {{ x = f32[7,2] parameter(0) i = s32[3,1] parameter(1) u = f32[3,2] parameter(2)
  ROOT s = f32[7,2] scatter(x, i, u), update_window_dims={{1}}, inserted_window_dims={{0}},
    scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, {declared}, to_apply=add }}""")
    arrays = [np.zeros((7, 2), np.float32), np.array([[5], [1], [5]], np.int32), np.ones((3, 2))]
    assert fitting(program, arrays)[1].tolist() == wanted


def test_a_condition_that_always_holds_is_no_end() -> None:
    loop = """HloModule m
body {{ ROOT s = (s32[], s32[]) parameter(0) }}
more {{ s = (s32[], s32[]) parameter(0) ROOT c = pred[] constant({}) }}
ENTRY e {{ s = (s32[], s32[]) parameter(0) ROOT w = (s32[], s32[]) while(s), condition=more, body=body }}"""
    assert unsound(spmd.parse(loop.format("true"))) == "an endless loop"
    assert not unsound(spmd.parse(loop.format("false")))


@pytest.mark.parametrize(("right", "defined"), [("b", True), ("c", False)])
def test_a_sort_compares_parts_of_one_operand(right: str, *, defined: bool) -> None:
    program = spmd.parse(f"""HloModule m
less {{ a = f32[] parameter(0) b = f32[] parameter(1) c = f32[] parameter(2) d = f32[] parameter(3)
  ROOT l = pred[] compare(a, {right}), direction=LT }}
ENTRY e {{ x = f32[4] parameter(0) y = f32[4] parameter(1)
  ROOT s = (f32[4], f32[4]) sort(x, y), dimensions={{0}}, to_apply=less }}""")
    assert bool(unsound(program)) is not defined


def test_nothing_is_gathered_from_an_array_without_elements() -> None:
    program = spmd.parse("""HloModule m
ENTRY e { x = f32[0,2] parameter(0) i = s32[3] parameter(1)
  ROOT g = f32[3,2] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},
    index_vector_dim=1, slice_sizes={0,2} }""")
    assert "without elements" in unsound(program)
