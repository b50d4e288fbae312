"""A module's cost: callees, loops, branches, reducers, communication."""

from __future__ import annotations

import pytest

from spmd.analysis.cost import module_cost
from spmd.text.parser import parse_module

SUM = """
sum {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT add = f32[] add(x, y)
}
"""


def test_a_reducer_counts_once_per_combined_element() -> None:
    module = parse_module(f"""HloModule t
{SUM}
ENTRY e {{
  a = f32[4,6] parameter(0)
  z = f32[] constant(0)
  ROOT r = f32[4] reduce(a, z), dimensions={{1}}, to_apply=sum
}}
""")
    cost = module_cost(module)
    assert cost.flops == 24 - 4
    assert cost.bytes_accessed == 96 + 4 + 16  # the reducer touches no memory of its own


LOOP = f"""HloModule t, num_partitions=4
{SUM}
cond {{
  s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] LIMIT
  ROOT c = pred[] compare(i, n), direction=LT
}}
body {{
  s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  u = s32[] add(i, one)
  a = f32[8] get-tuple-element(s), index=1
  b = f32[8] all-reduce(a), channel_id=1, replica_groups=[2,2]<=[4], use_global_device_ids=true, to_apply=sum
  c = f32[8] exponential(b)
  ROOT r = (s32[], f32[8]) tuple(u, c)
}}
ENTRY e {{
  a = f32[8] parameter(0)
  k = s32[] parameter(1)
  z = s32[] constant(0)
  t = (s32[], f32[8]) tuple(z, a)
  ROOT w = (s32[], f32[8]) while(t), condition=cond, body=body
}}
"""


def test_a_loop_counts_its_trips() -> None:
    cost = module_cost(parse_module(LOOP.replace("LIMIT", "constant(5)")))
    assert cost.flops == 5 * (1 + 8) + 6 * 1  # body 5 times, condition 6 times
    assert cost.transcendentals == 5 * 8
    reduced = cost.collectives["all-reduce"]
    assert (reduced.count, reduced.executed, reduced.bytes, reduced.wire_bytes) == (1, 5, 160, 160)
    assert cost.unknown_loops == ()


def test_a_loop_of_unknown_length_counts_once_and_is_named() -> None:
    cost = module_cost(parse_module(LOOP.replace("LIMIT", "get-tuple-element(s), index=0")))
    assert cost.unknown_loops == ("w",)
    assert cost.transcendentals == 8
    assert (
        module_cost(
            parse_module(LOOP.replace("LIMIT", "constant(5)")), trips=lambda _: 1
        ).transcendentals
        == 8
    )


def test_a_conditional_counts_its_dearest_branch_and_all_its_collectives() -> None:
    text = """HloModule t, num_partitions=2
SUM
small {
  a = f32[8] parameter(0)
  ROOT b = f32[8] all-reduce(a), GROUPS, to_apply=sum
}
large {
  a = f32[8] parameter(0)
  m = f32[8] multiply(a, a)
  n = f32[8] add(m, a)
  h = f32[4] slice(n), slice={[0:4]}
  ROOT b = f32[8] all-gather(h), GROUPS, dimensions={0}
}
ENTRY e {
  p = pred[] parameter(0)
  a = f32[8] parameter(1)
  ROOT c = f32[8] conditional(p, a, a), true_computation=small, false_computation=large
}
"""
    groups = "channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true"
    module = parse_module(text.replace("SUM", SUM).replace("GROUPS", groups))
    cost = module_cost(module)
    assert cost.flops == 16
    assert {kind: c.wire_bytes for kind, c in cost.collectives.items()} == {
        "all-gather": 16,
        "all-reduce": 32,
    }
    assert cost.wire_bytes == 48


@pytest.mark.parametrize(
    ("operation", "wire_bytes"),
    [
        ("f32[8] all-reduce(a), replica_groups={}, channel_id=1, use_global_device_ids=true, to_apply=sum", 32 * 6 / 4),
        (("f32[16] all-gather(a), dimensions={0}, replica_groups={{0,1},{2,3}}, channel_id=1, "
         "use_global_device_ids=true"), 32),
        (("f32[2] reduce-scatter(a), dimensions={0}, replica_groups=[1,4]<=[4], channel_id=1, "
         "use_global_device_ids=true, to_apply=sum"), 8 * 3),
        ("f32[8] all-to-all(a), dimensions={0}, replica_groups=mesh['x'=2,'y'=2] {'y'}, channel_id=1", 16),
        ("f32[8] collective-permute(a), source_target_pairs={{0,1},{1,0},{2,2}}, channel_id=1", 16),
    ],
)  # fmt: skip
def test_bytes_on_the_wire(operation: str, wire_bytes: float) -> None:
    entry = f"ENTRY e {{\n  a = f32[8] parameter(0)\n  ROOT r = {operation}\n}}\n"
    module = parse_module(f"HloModule t, num_partitions=4\n{SUM}\n{entry}")
    assert module_cost(module).wire_bytes == wire_bytes


def test_a_fusion_reads_only_what_it_slices() -> None:
    module = parse_module("""HloModule t
fused {
  a = f32[100,4] parameter(0)
  i = s32[] parameter(1)
  z = s32[] constant(0)
  s = f32[1,4] dynamic-slice(a, i, z), dynamic_slice_sizes={1,4}
  ROOT n = f32[1,4] negate(s)
}
ENTRY e {
  a = f32[100,4] parameter(0)
  i = s32[] parameter(1)
  ROOT f = f32[1,4] fusion(a, i), kind=kLoop, calls=fused
}
""")
    cost = module_cost(module)
    assert cost.flops == 4
    assert cost.bytes_accessed == 16 + 4 + 16


@pytest.mark.parametrize(
    ("result", "slices", "read"),
    [
        ("f32[4,1,6]", """t = f32[4,100,6] transpose(a), dimensions={1,0,2}
  ROOT s = f32[4,1,6] dynamic-slice(t, z, i, z), dynamic_slice_sizes={4,1,6}""", 4 * 24 + 4),
        ("f32[4,6]", """b = f32[400,6] bitcast(a)
  ROOT s = f32[4,6] dynamic-slice(b, i, z), dynamic_slice_sizes={4,6}""", 4 * 24 + 4),
        ("bf16[4,6]", """b = f32[400,6] reshape(a)
  c = bf16[400,6] convert(b)
  n = bf16[400,6] negate(c)
  p = bf16[400,6] multiply(n, c)
  ROOT s = bf16[4,6] slice(p), slice={[0:4], [0:6]}""", 4 * 24),
        ("f32[4,4,6]", """t = f32[4,100,6] transpose(a), dimensions={1,0,2}
  first = f32[4,1,6] dynamic-slice(t, z, i, z), dynamic_slice_sizes={4,1,6}
  second = f32[4,3,6] slice(t), slice={[0:4], [0:3], [0:6]}
  ROOT s = f32[4,4,6] concatenate(first, second), dimensions={1}""", 4 * 4 * 24 + 4),
        ("f32[4,6]", """r = s32[1] reshape(i)
  ROOT s = f32[4,6] gather(a, r), offset_dims={0,1}, collapsed_slice_dims={0}, start_index_map={0},
    index_vector_dim=0, slice_sizes={1,4,6}""", 4 * 24 + 4),
        # Other users need all elements.
        ("(f32[1,4,6], f32[4,100])", """s = f32[1,4,6] dynamic-slice(a, i, z, z), dynamic_slice_sizes={1,4,6}
  t = f32[4,100,6] transpose(a), dimensions={1,0,2}
  u = f32[4,100] reduce(t, zero), dimensions={2}, to_apply=sum
  ROOT r = (f32[1,4,6], f32[4,100]) tuple(s, u)""", 4 * 2400 + 4),
        ("(f32[1,4,6], f32[4,100,6])", """s = f32[1,4,6] dynamic-slice(a, i, z, z), dynamic_slice_sizes={1,4,6}
  t = f32[4,100,6] transpose(a), dimensions={1,0,2}
  ROOT r = (f32[1,4,6], f32[4,100,6]) tuple(s, t)""", 4 * 2400 + 4),
        ("f32[4,100,6]", "ROOT t = f32[4,100,6] transpose(a), dimensions={1,0,2}", 4 * 2400),
    ],
)  # fmt: skip
def test_a_fusion_reads_the_elements_that_its_slices_need(
    result: str, slices: str, read: int
) -> None:
    module = parse_module(f"""HloModule t
{SUM}
fused {{
  a = f32[100,4,6] parameter(0)
  i = s32[] parameter(1)
  z = s32[] constant(0)
  zero = f32[] constant(0)
  {slices}
}}
ENTRY e {{
  a = f32[100,4,6] parameter(0)
  i = s32[] parameter(1)
  ROOT f = {result} fusion(a, i), kind=kLoop, calls=fused
}}
""")
    fusion = module.entry.root
    assert module_cost(module).bytes_accessed == read + fusion.shape.byte_size


def test_a_factorization_costs_the_same_as_an_opcode_and_as_a_call_of_lapack() -> None:
    native = parse_module("""HloModule t
ENTRY e {
  a = f32[2,6,6] parameter(0)
  b = f32[2,6,3] parameter(1)
  l = f32[2,6,6] cholesky(a), lower=true
  ROOT x = f32[2,6,3] triangular-solve(l, b), left_side=true, lower=true, unit_diagonal=false, transpose_a=NO_TRANSPOSE
}
""")
    called = parse_module("""HloModule t
ENTRY e {
  a = f32[2,6,6] parameter(0)
  b = f32[2,6,3] parameter(1)
  p = (f32[2,6,6], s32[2]) custom-call(a), custom_call_target="lapack_spotrf_ffi"
  l = f32[2,6,6] get-tuple-element(p), index=0
  ROOT x = f32[2,6,3] custom-call(l, b), custom_call_target="lapack_strsm_ffi"
}
""")
    assert module_cost(native).flops == module_cost(called).flops > 0


@pytest.mark.parametrize(
    ("target", "flops"),
    [("getrf", 2 / 3 * 8), ("geqrf", 4 / 3 * 8), ("syevd", 9.0 * 8), ("unknown", 0.0)],
)
def test_calls_of_lapack_on_square_matrices(target: str, flops: float) -> None:
    module = parse_module(f"""HloModule t
ENTRY e {{
  a = f32[5,2,2] parameter(0)
  ROOT r = f32[5,2,2] custom-call(a), custom_call_target="lapack_s{target}_ffi"
}}
""")
    assert module_cost(module).flops == pytest.approx(5 * flops)
