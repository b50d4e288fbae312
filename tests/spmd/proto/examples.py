"""Modules that hold every opcode, attribute and annotation between them, as XLA writes them."""

from __future__ import annotations

from spmd.hlo import HloModule
from spmd.text.parser import parse_module

CALLEES = """
sum {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] add(x, y)
}

less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT
}

neg {
  n = f32[4]{0} parameter(0)
  ROOT m = f32[4]{0} negate(n)
}

twice {
  o = f32[4]{0} parameter(0)
  ROOT p = f32[4]{0} add(o, o)
}

negate_all {
  q = f32[] parameter(0)
  ROOT r = f32[] negate(q)
}

keep_going {
  s = (s32[], f32[4]{0}) parameter(0)
  t = s32[] get-tuple-element(s), index=0
  u = s32[] constant(3)
  ROOT v = pred[] compare(t, u), direction=LT
}

step {
  w = (s32[], f32[4]{0}) parameter(0)
  t.1 = s32[] get-tuple-element(w), index=0
  one = s32[] constant(1)
  next = s32[] add(t.1, one)
  value = f32[4]{0} get-tuple-element(w), index=1
  ROOT result = (s32[], f32[4]{0}) tuple(next, value)
}

scan_body {
  carry = f32[] parameter(1)
  element = f32[] parameter(0)
  after = f32[] add(carry, element)
  ROOT both = (f32[], f32[]) tuple(after, after)
}
"""

#: Functions of f32[4] with result_accuracy, without, of two f32[4], and of two s32[4].
_ACCURATE = """
acos acosh asin asinh atanh cbrt cosh cosine erf exponential exponential-minus-one log log-plus-one logistic rsqrt
sine sinh sqrt tan tanh
"""
_UNARY = "abs ceil copy floor negate round-nearest-afz round-nearest-even sign"
_BINARY = "add atan2 divide maximum minimum multiply power remainder subtract"
_BITS = "mulhi and or xor shift-left shift-right-arithmetic shift-right-logical"

ELEMENTWISE = "\n".join(
    (
        "f = f32[4]{0} parameter(0)",
        "g = f32[4]{0} parameter(1)",
        "i = s32[4]{0} parameter(2)",
        "k = pred[4]{0} parameter(3)",
        *(f"{name}.0 = f32[4]{{0}} {name}(f)" for name in f"{_ACCURATE} {_UNARY}".split()),
        *(f"{name}.1 = f32[4]{{0}} {name}(f, g)" for name in _BINARY.split()),
        *(f"{name}.2 = s32[4]{{0}} {name}(i, i)" for name in _BITS.split()),
        "not.0 = pred[4]{0} not(k)",
        "popcnt.0 = s32[4]{0} popcnt(i)",
        "clz.0 = s32[4]{0} count-leading-zeros(i)",
        "finite.0 = pred[4]{0} is-finite(f)",
        "complex.0 = c64[4]{0} complex(f, g)",
        "real.0 = f32[4]{0} real(complex.0)",
        "imag.0 = f32[4]{0} imag(complex.0)",
        "select.0 = f32[4]{0} select(k, f, g)",
        "clamp.0 = f32[4]{0} clamp(f, g, f)",
        "convert.0 = bf16[4]{0} convert(f)",
        "bits.0 = s32[4]{0} bitcast-convert(f)",
        "random = u32[4]{0} bitcast-convert(f)",
        "stochastic.0 = s8[4]{0} stochastic-convert(f, random)",
        "reduced.0 = f32[4]{0} reduce-precision(f), exponent_bits=5, mantissa_bits=10",
        "exact = f32[4]{0} exponential(f), result_accuracy={mode=highest}",
        "close = f32[4]{0} tanh(f), result_accuracy={tolerance={atol=0.5,rtol=0.25,ulps=3}}",
        "compare.0 = pred[4]{0} compare(f, g), direction=GE, type=TOTALORDER",
        "compare.1 = pred[4]{0} compare(i, i), direction=EQ",
        "ROOT compare.2 = pred[4]{0} compare(f, g), direction=NE",
    )
)

LITERALS = """
a = pred[3]{0} constant({true, false, true})
b = s8[2]{0} constant({-128, 127})
c = s16[2]{0} constant({-32768, 32767})
d = s32[3]{0} constant({-2147483648, -1, 2147483647})
e = s64[3]{0} constant({-9223372036854775808, -1, 9223372036854775807})
f = u8[2]{0} constant({0, 255})
g = u16[2]{0} constant({0, 65535})
h = u32[2]{0} constant({0, 4294967295})
i = u64[2]{0} constant({0, 18446744073709551615})
j = s4[5]{0} constant({-8, -1, 0, 1, 7})
k = u4[3]{0} constant({0, 1, 15})
l = s2[3]{0} constant({-2, -1, 1})
m = u2[3]{0} constant({0, 1, 3})
n = f16[3]{0} constant({-1.5, inf, 6.104e-05})
o = bf16[3]{0} constant({-1.5, -inf, 3})
p = f32[4]{0} constant({-0, 1e-45, nan, 3.5})
q = f64[2]{0} constant({0.1, -inf})
r = c64[2]{0} constant({(1, -2.5), (-inf, 3)})
s = c128[1]{0} constant({(0.1, 0.2)})
t = f8e5m2[2]{0} constant({1.5, inf})
u = f8e4m3[2]{0} constant({1.5, inf})
v = f8e4m3fn[2]{0} constant({1.5, nan})
w = f8e4m3b11fnuz[2]{0} constant({1.5, 2})
x = f8e5m2fnuz[2]{0} constant({1.5, 2})
y = f8e4m3fnuz[2]{0} constant({1.5, 2})
z = f8e3m4[2]{0} constant({1.5, 2})
aa = f8e8m0fnu[2]{0} constant({1, 2})
bb = f4e2m1fn[3]{0} constant({1.5, -6, 0})
cc = f32[2,3]{0,1} constant({ {1, 2, 3}, {4, 5, 6} })
dd = (f32[2]{0}, (s32[], pred[])) constant(({1, 2}, (3, true)))
ee = f32[0,4]{1,0} constant({})
ff = f32[100]{0} constant({...})
gg = f32[] constant(2)
hh = s32[2,2,2]{1,2,0} constant({ { {1, 2}, {3, 4} }, { {5, 6}, {7, 8} } })
ROOT ii = f32[2]{0} constant({0, 0})
"""

SHAPES = """
a = f32[8,16]{0,1:T(8,128)(2,1)S(1)} parameter(0)
b = s32[<=8,4]{1,0} parameter(1)
c = u32[]{:S(2)} parameter(2)
d = s4[4,8]{1,0:E(4)} parameter(3)
e = f32[1024]{0:T(8)L(1024)} parameter(4), parameter_replication={true}
f = token[] parameter(5)
g = (f32[2]{0}, (s32[], token[]), ()) parameter(6)
h = f32[64]{0:SC(0:32)} parameter(7)
i = f32[64]{0:T(8)M(1024)} parameter(8)
ROOT j = () tuple()
"""

SHAPING = """
a = f32[2,3]{1,0} parameter(0)
b = f32[3,2]{1,0} transpose(a), dimensions={1,0}
c = f32[2,3]{1,0} reverse(a), dimensions={0,1}
d = f32[4,3]{1,0} concatenate(a, a), dimensions={0}
e = f32[5,2,3]{2,1,0} broadcast(a), dimensions={1,2}
f = f32[6]{0} reshape(a)
g = f32[6]{0} bitcast(a)
h = s32[] get-dimension-size(a), dimensions={0}
i = f32[<=2,3]{1,0} set-dimension-size(a, h), dimensions={0}
j = f32[<=6]{0} dynamic-reshape(i, h)
k = s32[4,3]{1,0} iota(), iota_dimension=1
l = f32[1,2]{1,0} slice(a), slice={[1:2], [0:3:2]}
m = f32[] constant(0)
n = f32[5,1]{1,0} pad(a, m), padding=1_1_1x-1_-1_0
o = s32[] constant(0)
p = f32[1,2]{1,0} dynamic-slice(a, o, o), dynamic_slice_sizes={1,2}
q = f32[2,3]{1,0} dynamic-update-slice(a, p, o, o)
r = u32[] partition-id()
s = u32[] replica-id()
t = (f32[2,3]{1,0}, u32[]) tuple(a, r)
u = (f32[2,3]{1,0}, u32[]) opt-barrier(t)
v = u32[] get-tuple-element(u), index=1
w = token[] after-all()
x = f32[2,3]{1,0} add-dependency(a, w)
ROOT y = f32[2,3]{1,0} copy(x), control-predecessors={q, n}
"""

CONTRACTIONS = """
a = f32[2,3,4]{2,1,0} parameter(0)
b = f32[2,4,5]{2,1,0} parameter(1)
c = f32[2,3,5]{2,1,0} dot(a, b), lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, rhs_contracting_dims={1}, operand_precision={high,highest}
d = f32[2,3,5]{2,1,0} dot(a, b), lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, rhs_contracting_dims={1}, algorithm=dot_tf32_tf32_f32
e = f32[11,5]{1,0} parameter(2)
f = f32[3,5,7]{2,1,0} parameter(3)
g = s64[3]{0} parameter(4)
h = f32[11,7]{1,0} ragged-dot(e, f, g), lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}
i = f32[1,8,8,4]{3,2,1,0} parameter(5)
j = f32[3,3,2,6]{3,2,1,0} parameter(6)
k = f32[1,3,4,6]{3,2,1,0} convolution(i, j), window={size=3x3 stride=2x2 pad=0_0x1_1 rhs_reversal=1x0}, dim_labels=b01f_01io->b01f, feature_group_count=2, operand_precision={high,default}
s = f32[1,3,4,6]{3,2,1,0} convolution(i, j), window={size=3x3 stride=2x2 pad=0_0x1_1}, dim_labels=b01f_01io->b01f, feature_group_count=2, convolution_kind=fprop, sparsity_config={lhs={sparsity=2x4 dimension=1 stride=1}}
ROOT l = f32[2,3,5]{2,1,0} add(c, d)
"""

SCALED_DOT = """
a = f8e4m3fn[4,64]{1,0} parameter(0)
b = f8e4m3fn[64,8]{1,0} parameter(1)
c = f8e8m0fnu[4,2]{1,0} parameter(2)
d = f8e8m0fnu[2,8]{1,0} parameter(3)
ROOT e = f32[4,8]{1,0} scaled-dot(a, b, c, d), lhs_contracting_dims={1}, rhs_contracting_dims={0}
"""

REDUCTIONS = """
a = f32[6,8]{1,0} parameter(0)
b = f32[] constant(0)
c = f32[8]{0} reduce(a, b), dimensions={0}, to_apply=sum
d = f32[6,8]{1,0} map(a), dimensions={0,1}, to_apply=negate_all
e = f32[3,8]{1,0} reduce-window(a, b), window={size=2x2 stride=2x1 pad=0_0x1_1 rhs_dilate=1x2}, to_apply=sum
f = f32[3,4]{1,0} parameter(1)
g = f32[6,8]{1,0} select-and-scatter(a, f, b), window={size=2x2 stride=2x2}, select=less, scatter=sum
h = f32[8]{0} parameter(2)
i = (f32[6,8]{1,0}, f32[8]{0}, f32[8]{0}) batch-norm-training(a, h, h), epsilon=0.001, feature_index=1
j = f32[6,8]{1,0} batch-norm-inference(a, h, h, h, h), epsilon=0.001, feature_index=1
k = (f32[6,8]{1,0}, f32[8]{0}, f32[8]{0}) batch-norm-grad(a, h, h, h, a), epsilon=0.001, feature_index=1
l = f32[6,8]{1,0} sort(a), dimensions={1}, is_stable=true, to_apply=less
m = (f32[6,3]{1,0}, s32[6,3]{1,0}) topk(a), k=3, largest=true
n = s32[2]{0} parameter(3)
o = f32[2,8]{1,0} gather(a, n), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,8}, indices_are_sorted=true
p = f32[6,8]{1,0} scatter(a, n, o), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, indices_are_sorted=true, unique_indices=true, to_apply=sum
q = s64[6,2]{1,0} parameter(4)
r = f32[6,2]{1,0} gather(a, q), offset_dims={}, collapsed_slice_dims={1}, start_index_map={1}, operand_batching_dims={0}, start_indices_batching_dims={0}, index_vector_dim=2, slice_sizes={1,1}
ROOT s = (f32[8]{0}, f32[]) scan(h, b), dimensions={0}, is_associative=true, num_carries=1, to_apply=scan_body
"""

RANDOM_AND_LINEAR_ALGEBRA = """
a = f32[] parameter(0)
b = f32[4]{0} rng(a, a), distribution=rng_uniform
c = u64[2]{0} parameter(1)
d = (u64[2]{0}, u32[3]{0}) rng-bit-generator(c), algorithm=rng_three_fry
e = (u64[2]{0}, u32[3]{0}) rng-bit-generator(c), algorithm=rng_default
f = u64[2]{0} rng-get-and-update-state(), delta=4096
g = f32[4,4]{1,0} parameter(2)
h = f32[4,4]{1,0} cholesky(g), lower=true
i = f32[4,4]{1,0} triangular-solve(h, g), left_side=true, lower=true, transpose_a=ADJOINT
j = c64[4,3]{1,0} fft(g), fft_type=RFFT, fft_length={4}
ROOT k = f32[4,4]{1,0} add(i, i)
"""

CONTROL = """
a = f32[4]{0} parameter(0)
b = f32[4]{0} call(a), to_apply=neg
c = f32[4]{0} fusion(a), kind=kLoop, calls=twice
d = s32[] constant(0)
e = (s32[], f32[4]{0}) tuple(d, a)
f = (s32[], f32[4]{0}) while(e), condition=keep_going, body=step, backend_config={"known_trip_count":{"n":"3"}}
g = pred[] parameter(1)
h = f32[4]{0} conditional(g, a, a), true_computation=neg, false_computation=twice
i = f32[4]{0} conditional(d, a, a), branch_computations={neg, twice}
j = f32[4]{0} domain(a), domain={kind="sharding", entry={maximal device=1}, exit={devices=[2]<=[2]}}
k = token[] after-all()
l = ((f32[2]{0}, s32[]), token[]) infeed(k), infeed_config="in"
m = token[] outfeed(a, k), outfeed_shape=f32[4]{0}, outfeed_config="out"
ROOT n = f32[4]{0} add(h, i)
"""

COLLECTIVES = """
a = f32[8,4]{1,0} parameter(0)
b = f32[8,4]{1,0} all-reduce(a), channel_id=1, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, to_apply=sum
c = f32[32,4]{1,0} all-gather(a), channel_id=2, replica_groups=[1,4]<=[4], dimensions={0}, use_global_device_ids=true
d = f32[4,4]{1,0} reduce-scatter(a), channel_id=3, replica_groups=[2,2]<=[2,2]T(1,0), use_global_device_ids=true, dimensions={0}, to_apply=sum
e = f32[8,4]{1,0} all-to-all(a), replica_groups={{0,1,2,3}}, dimensions={0}
f = (f32[8,4]{1,0}, f32[8,4]{1,0}) all-to-all(a, a), replica_groups={{0,1},{2,3}}
g = f32[8,4]{1,0} collective-permute(a), channel_id=5, source_target_pairs={{0,1},{1,0}}
h = f32[8,4]{1,0} collective-broadcast(a), replica_groups={{1,0}}
i = f32[8,4]{1,0} all-reduce(a), replica_groups={}, to_apply=sum
j = f32[8,4]{1,0} all-reduce(a), channel_id=9, replica_groups=mesh['x'=2,'y'=2] {'y'}, use_global_device_ids=true, to_apply=sum
k = f32[8,4]{1,0} all-reduce-start(a), channel_id=10, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=sum
l = f32[8,4]{1,0} all-reduce-done(k)
m = (f32[8,4]{1,0}, f32[16,4]{1,0}) all-gather-start(a), replica_groups={{0,1}}, dimensions={0}
n = f32[16,4]{1,0} all-gather-done(m)
o = (f32[8,4]{1,0}, f32[8,4]{1,0}, u32[], u32[]) collective-permute-start(a), source_target_pairs={{0,1}}
p = f32[8,4]{1,0} collective-permute-done(o)
q = s64[4]{0} parameter(1)
r = f32[8,4]{1,0} ragged-all-to-all(a, a, q, q, q, q), replica_groups={{0,1,2,3}}
s = token[] after-all()
t = (f32[8,4]{1,0}, u32[], token[]) send(a, s), channel_id=7, is_host_transfer=true
u = token[] send-done(t), channel_id=7, is_host_transfer=true
v = (f32[8,4]{1,0}, u32[], token[]) recv(s), channel_id=8
w = (f32[8,4]{1,0}, token[]) recv-done(v), channel_id=8
x = f32[8,4]{1,0} all-reduce(a), replica_groups={{0,1}}, constrain_layout=true, to_apply=sum
ROOT y = f32[8,4]{1,0} all-reduce(a), channel_id=11, replica_groups=mesh['x'=2,'y'=4], device_ids=([2,4]T(1,0)) {'x','y':(2)2}, use_global_device_ids=true, to_apply=sum
"""

ASYNC = """
a = f32[4]{0} parameter(0)
b = (f32[4]{0}, f32[4]{0}, u32[]) copy-start(a), cross_program_prefetch_index=0
c = f32[4]{0} copy-done(b)
d = ((f32[4]{0}), f32[2]{0}, s32[]) slice-start(a), slice={[0:2]}
e = ((f32[4]{0}), f32[2]{0}, s32[]) slice-update(d)
f = f32[2]{0} slice-done(e)
g = ((f32[4]{0}), f32[4]{0}, s32[]) custom-call-start(a), async_execution_thread="host", custom_call_target="t"
ROOT h = f32[4]{0} custom-call-done(g)
"""

CUSTOM_CALLS = """
a = f32[2,2]{1,0} parameter(0)
b = f32[2,2]{1,0} custom-call(a), custom_call_target="plain"
c = f32[2,2]{1,0} custom-call(a), custom_call_target="laid out", operand_layout_constraints={f32[2,2]{0,1}}, custom_call_has_side_effect=true
d = f32[2,2]{1,0} custom-call(a), custom_call_target="ffi", api_version=API_VERSION_TYPED_FFI, backend_config={uplo = 76 : ui8}
e = f32[2,2]{1,0} custom-call(a), custom_call_target="two", schedule=SCHEDULE_EARLIEST, called_computations={neg, twice}
f = (f32[2,2]{1,0}, f32[2,2]{1,0}) custom-call(a, a), custom_call_target="alias", output_to_operand_aliasing={{0}: (0, {}), {1}: (1, {})}
g = f32[2,2]{1,0} custom-call(a), custom_call_target="literal", literal=s32[2]{0} {1, 2}
h = f32[1,8,8,4]{3,2,1,0} parameter(1)
i = f32[3,3,4,6]{3,2,1,0} parameter(2)
j = f32[1,8,8,6]{3,2,1,0} custom-call(h, i), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, feature_group_count=2, custom_call_target="conv"
m = f32[2]{0} custom-call(), custom_call_target="no operands", operand_layout_constraints={}
k = f32[2,2]{1,0} custom-call(a), custom_call_target="text", backend_config="unspecified_dims=[1]"
ROOT l = f32[2,2]{1,0} add(b, c)
"""

SHARDINGS = """
a = f32[8,8]{1,0} parameter(0), sharding={devices=[2,1]0,1}
b = f32[8,8]{1,0} negate(a), sharding={devices=[2,2]<=[2,2]T(1,0)}
c = f32[8,8]{1,0} negate(b), sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate}
d = f32[8,8]{1,0} negate(c), sharding={devices=[1,1,2,2]<=[4] last_tile_dims={manual, replicated}}
e = f32[8,8]{1,0} negate(d), sharding={replicated}
f = f32[8,8]{1,0} negate(e), sharding={maximal device=1}
g = f32[8,8]{1,0} negate(f), sharding={manual}
h = f32[8,8]{1,0} negate(g), sharding={unknown}
i = f32[8,8]{1,0} negate(h), sharding={devices=[2,1]<=[2] metadata={op_name="x"}}
j = f32[8,8]{1,0} negate(i), sharding={devices=[2,1]<=[2] shard_as 3}
k = f32[8,8]{1,0} negate(j), sharding={replicated shard_like 4}
l = f32[8,8]{1,0} negate(k), sharding={mesh['x'=2,'y'=4], [{'x'}, {'y':(1)2, ?}]}
m = f32[8,8]{1,0} negate(l), sharding={mesh['x'=2,'y'=2], device_ids=([2,2]T(1,0)), [{'x'}, {?}], replicated={'y'}}
n = f32[8,8]{1,0} negate(m), sharding={mesh['x'=2], replicated}
o = f32[8,8]{1,0} negate(n), sharding={unreduced}
p = f32[8,8]{1,0} negate(o), sharding={devices=[2,1]<=[2] metadata={{op_name="x"}, {op_type="y" source_line=3}}}
ROOT q = (f32[8,8]{1,0}, (f32[8,8]{1,0}, f32[8,8]{1,0})) custom-call(p), custom_call_target="t", sharding={{replicated}, {devices=[2,1]<=[2]}, {manual}}
"""

ANNOTATIONS = """
a = f32[4]{0} parameter(0), metadata={op_type="t" op_name="x[\\'y\\']" source_file="f.py" source_line=1 source_end_line=2 source_column=3 source_end_column=4}
b = f32[4]{0} negate(a), metadata={op_name="n" deduplicated_name="d" scheduling_name="s"}
c = f32[4]{0} negate(b), frontend_attributes={key="value",other={n = 1 : i32}}
d = f32[4]{0} negate(c), statistics={visualizing_index=1,s-1=33,s-2=4.5}
e = f32[4]{0} negate(d), origin={{"v1" {0,1}}}
f = (f32[4]{0}, f32[4]{0}) tuple(d, e), origin={({"v1"}, {})}
g = f32[4]{0} negate(e), metadata={op_name="caf\\303\\251"}, backend_config="opaque \\"text\\""
ROOT h = f32[4]{0} add(g, g), control-predecessors={b, c}
"""

HEADER = (
    "HloModule m, is_scheduled=true, input_output_alias={ {0}: (0, {}, must-alias), {1}: (1, {}, may-alias) }, "
    "buffer_donor={ (2, {}) }, "
    "entry_computation_layout={(f32[4]{0}, f32[4]{0}, f32[4,2]{0,1})->(f32[4]{0}, f32[4]{0})}, "
    'num_partitions=4, replica_count=2, frontend_attributes={k="v",xla.sdy.meshes={mesh = #sdy.mesh<["x"=4]>}}'
)
HEADED = """
FileNames
1 "f.py"

FunctionNames
1 "main"
2 "inner"

FileLocations
1 {file_name_id=1 function_name_id=1 line=3 end_line=3 column=1 end_column=9}
2 {file_name_id=1 function_name_id=2 line=5 end_line=6 column=2 end_column=7}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}

helper {
  q = f32[4]{0} parameter(0)
  ROOT r = f32[4]{0} negate(q), metadata={stack_frame_id=2}
}, execution_thread="host"

ENTRY e {
  c = f32[4,2]{0,1} parameter(2)
  b = f32[4]{0} parameter(1)
  a = f32[4]{0} parameter(0)
  d = ((f32[4]{0}), f32[4]{0}, s32[]) async-start(a), async_execution_thread="host", output_to_operand_aliasing={{1}: (0, {})}, calls=helper
  f = f32[4]{0} async-done(d)
  ROOT t = (f32[4]{0}, f32[4]{0}) tuple(f, b)
}
"""

BODIES = {
    "elementwise": ELEMENTWISE,
    "literals": LITERALS,
    "shapes": SHAPES,
    "shaping": SHAPING,
    "contractions": CONTRACTIONS,
    "scaled_dot": SCALED_DOT,
    "reductions": REDUCTIONS,
    "random_and_linear_algebra": RANDOM_AND_LINEAR_ALGEBRA,
    "control": CONTROL,
    "collectives": COLLECTIVES,
    "async": ASYNC,
    "custom_calls": CUSTOM_CALLS,
    "shardings": SHARDINGS,
    "annotations": ANNOTATIONS,
}
TEXTS = {
    name: f"HloModule m\n{CALLEES}\nENTRY e {{\n{body}\n}}\n" for name, body in BODIES.items()
} | {"header": f"{HEADER}\n{HEADED}"}


def example(name: str) -> HloModule:
    return parse_module(TEXTS[name], name)
