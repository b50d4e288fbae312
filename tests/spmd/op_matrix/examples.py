"""One line for each form of the HLO grammar that is a whole instruction (or a small program), in our own words.

``devices``: how many run it in lock step; 1 evaluates it plainly. ``refused``: words of the reason why it has no value here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Example:
    text: str
    devices: int = 1
    refused: str = ""


_SUM = "sum { u = f32[] parameter(0) v = f32[] parameter(1) ROOT w = f32[] add(u, v) }\n"
_FIRST = "first { u = f32[] parameter(0) v = f32[] parameter(1) ROOT w = f32[] maximum(u, v) }\n"
_ORDER = "less { u = f32[] parameter(0) v = f32[] parameter(1) ROOT w = pred[] compare(u, v), direction=LT }\n"
_NOT_LESS = "ge { u = f32[] parameter(0) v = f32[] parameter(1) ROOT w = pred[] compare(u, v), direction=GE }\n"
_TWICE = "twice { u = f32[4] parameter(0) ROOT w = f32[4] add(u, u) }\n"


def entry(*lines: str, before: str = "") -> str:
    return before + "ENTRY e {\n  " + "\n  ".join(lines) + "\n}\n"


def one(line: str, *parameters: str, before: str = "") -> str:
    """An entry whose root is ``line``; operands are p0, p1, ... of the given shapes."""
    heads = [f"p{i} = {shape} parameter({i})" for i, shape in enumerate(parameters)]
    return entry(*heads, f"ROOT r = {line}", before=before)


EXAMPLES: dict[str, Example] = {
    "a bare instruction": Example("%r = f32[4]{0} add(f32[4]{0} %a, f32[4]{0} %b)"),
    "a bare instruction without names": Example("r = f32[2] add(f32[2], f32[2])"),
    "no ROOT, no ENTRY, result inferred": Example("c {\n  a = f32[2] parameter(0)\n  b = f32[2] negate(a)\n  s = add(a, b)\n}"),
    "nested operands": Example(one("f32[2]{0} add(f32[2]{0} negate(p0), f32[2]{0} exponential(p0))", "f32[2]{0}")),
    "signature and percent signs": Example("ENTRY %m (x: f32[2], y: (s32[], pred[])) -> s32[] {\n  %x = f32[2]{0} parameter(0)\n  %y = (s32[], pred[]) parameter(1)\n  ROOT %g = s32[] get-tuple-element((s32[], pred[]) %y), index=0\n}"),
    "parameters out of order": Example(entry("b = s32[] parameter(1)", "a = f32[] parameter(0)", "ROOT t = (s32[], f32[]) tuple(b, a)")),
    "layouts": Example(one("f32[2,3]{0,1} copy(p0)", "f32[2,3]{1,0:T(8,128)(2,1)}")),
    "memory space and tail": Example(one("f32[8]{0:T(8)L(1024)S(1)} copy(p0)", "f32[8]{0}")),
    "element size of 4 bits": Example(one("s4[4]{0:E(4)} negate(p0)", "s4[4]{0:E(4)}")),
    "bounded dynamic": Example(one("s32[] get-dimension-size(p0), dimensions={0}", "s32[<=8,4]")),
    "empty tuple": Example("ENTRY e { ROOT t = () tuple() }"),
    "integer constant": Example("ENTRY e { ROOT c = s64[] constant(-9223372036854775808) }"),
    "constants with comments": Example("ENTRY e { ROOT c = f32[2,2]{1,0} constant({ /*i0=0*/ {1, -inf}, /*i0=1*/ {nan, -.5} }) }"),
    "NaN with a payload": Example("ENTRY e { ROOT c = bf16[] constant(nan(0x41)) }"),
    "complex constant": Example("ENTRY e { ROOT c = c64[2] constant({(1, -2.5), (-inf, nan)}) }"),
    "tuple constant": Example("ENTRY e { ROOT c = (s32[2], f32[]) constant(({1,2}, 3)) }"),
    "elided constant": Example("ENTRY e { ROOT c = f32[1000] constant({...}) }", refused="elide"),
    "pred constant": Example("ENTRY e { ROOT c = pred[3] constant({true, 0, 1}) }"),
    "iota": Example("ENTRY e { ROOT i = s32[2,3] iota(), iota_dimension=1 }"),
    "compare": Example(one("pred[4] compare(p0, p0), direction=LT, type=TOTALORDER", "f32[4]")),
    "reduce-precision": Example(one("f32[4] reduce-precision(p0), exponent_bits=5, mantissa_bits=10", "f32[4]")),
    "result accuracy": Example(one("f32[4] exponential(p0), result_accuracy={mode=highest}", "f32[4]")),
    "tolerance": Example(one("f32[4] tanh(p0), result_accuracy={tolerance={atol=0.1,rtol=0.2,ulps=3}}", "f32[4]")),
    "metadata": Example(one('f32[] negate(p0), metadata={op_type="neg" op_name="jit(f)/neg" source_file="a.py" source_line=3 stack_frame_id=2}', "f32[]")),
    "frontend attributes": Example(one('f32[] negate(p0), frontend_attributes={_scheduling_group_id="1",k={n = 1 : i32}}', "f32[]")),
    "statistics": Example(one("f32[] negate(p0), statistics={visualizing_index=1,s-1=33,s-2=4.5}", "f32[]")),
    "origin": Example(one('(f32[], f32[]) tuple(p0, p0), origin={({"v1"}, {"v2" {0}})}', "f32[]")),
    "control predecessors": Example(entry("a = f32[] parameter(0)", "b = f32[] negate(a)", "ROOT c = f32[] abs(a), control-predecessors={b}")),
    "sharding": Example(one("f32[4,4] negate(p0), sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate}", "f32[4,4]")),
    "named sharding": Example(one("f32[4,4] negate(p0), sharding={mesh['x'=2,'y'=2], [{'x'}, {'y'}]}", "f32[4,4]")),
    "slice": Example(one("f32[2,2] slice(p0), slice={[0:4:2], [1:3]}", "f32[4,3]")),
    "slice of a scalar": Example(one("f32[] slice(p0), slice={}", "f32[]")),
    "dynamic-slice": Example(one("f32[1,2] dynamic-slice(p0, p1, p1), dynamic_slice_sizes={1,2}", "f32[4,3]", "s32[]")),
    "dynamic-slice by a vector": Example(one("f32[1,2] dynamic-slice(p0, p1), dynamic_slice_sizes={1,2}", "f32[4,3]", "s32[2]")),
    "dynamic-update-slice": Example(one("f32[4,3] dynamic-update-slice(p0, p1, p2, p2)", "f32[4,3]", "f32[1,2]", "s32[]")),
    "pad": Example(one("f32[3,4] pad(p0, p1), padding=0_0_1x-1_2_0", "f32[2,3]", "f32[]")),
    "broadcast": Example(one("f32[2,3] broadcast(p0), dimensions={1}", "f32[3]")),
    "reshape with an inferred dimension": Example(one("f32[6] reshape(p0), inferred_dimension=0", "f32[2,3]")),
    "gather": Example(one("f32[3,2] gather(p0, p1), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,2}, indices_are_sorted=true", "f32[4,2]", "s32[3,1]")),
    "gather in batches": Example(one("f32[2,3] gather(p0, p1), offset_dims={}, collapsed_slice_dims={1}, operand_batching_dims={0}, start_indices_batching_dims={0}, start_index_map={1}, index_vector_dim=2, slice_sizes={1,1}", "f32[2,4]", "s32[2,3,1]")),
    "scatter": Example(one("f32[4,2] scatter(p0, p1, p2), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, unique_indices=true, to_apply=sum", "f32[4,2]", "s32[3,1]", "f32[3,2]", before=_SUM)),
    "variadic reduce with an inline body": Example(one("(f32[2], f32[2]) reduce(p0, p0, p1, p1), dimensions={1}, to_apply={ a = f32[] parameter(0) b = f32[] parameter(1) c = f32[] parameter(2) d = f32[] parameter(3) s = f32[] add(a, c) m = f32[] maximum(b, d) ROOT t = (f32[], f32[]) tuple(s, m) }", "f32[2,3]", "f32[]")),
    "reduce-window": Example(one("f32[2,3] reduce-window(p0, p1), window={size=2x1 stride=2x1 pad=0_0x1_-1 lhs_dilate=1x1 rhs_dilate=1x2}, to_apply=sum", "f32[4,3]", "f32[]", before=_SUM)),
    "reduce-window of a scalar": Example(one("f32[] reduce-window(p0, p1), window={}, to_apply=sum", "f32[]", "f32[]", before=_SUM)),
    "select-and-scatter": Example(one("f32[4] select-and-scatter(p0, p1, p2), window={size=2 stride=2}, select=ge, scatter=sum", "f32[4]", "f32[2]", "f32[]", before=_NOT_LESS + _SUM)),
    "map": Example(one("f32[4] map(p0, p0), dimensions={0}, to_apply=sum", "f32[4]", before=_SUM)),
    "sort": Example(one("f32[4] sort(p0), dimensions={0}, is_stable=true, to_apply=less", "f32[4]", before=_ORDER)),
    "topk": Example(one("(f32[2,2], s32[2,2]) topk(p0), k=2, largest=true", "f32[2,5]")),
    "dot": Example(one("f32[2,3,5] dot(p0, p1), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}, operand_precision={high,default}, algorithm=dot_tf32_tf32_f32", "f32[2,3,4]", "f32[2,4,5]")),
    "ragged-dot": Example(one("f32[6,3] ragged-dot(p0, p1, p2), lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}", "f32[6,2]", "f32[2,2,3]", "s32[2]")),
    "scaled-dot": Example(one("f32[2,3] scaled-dot(p0, p1, p2, p3), lhs_contracting_dims={1}, rhs_contracting_dims={1}", "f8e4m3fn[2,64]", "f8e4m3fn[3,64]", "f8e8m0fnu[2,2]", "f8e8m0fnu[3,2]")),
    "sparse dot": Example(one("f32[2,3] dot(p0, p1, p2), lhs_contracting_dims={1}, rhs_contracting_dims={0}, sparsity=L.1@2:4", "f32[2,8]", "f32[16,3]", "u16[2,2]"), refused="parse"),
    "convolution": Example(one("f32[1,2,2,4] convolution(p0, p1), window={size=3x3 stride=2x2 pad=1_1x0_1 rhs_reversal=0x1}, dim_labels=b01f_01io->b01f, feature_group_count=2", "f32[1,4,4,2]", "f32[3,3,1,4]")),
    "convolution without space": Example(one("f32[2,4] convolution(p0, p1), window={}, dim_labels=bf_io->bf", "f32[2,3]", "f32[3,4]")),
    "fft": Example(one("c64[3,3] fft(p0), fft_type=RFFT, fft_length={4}", "f32[3,4]")),
    "triangular-solve": Example(one("f32[2,3] triangular-solve(p0, p1), left_side=true, lower=true, unit_diagonal=true, transpose_a=NO_TRANSPOSE", "f32[2,2]", "f32[2,3]")),
    "cholesky": Example(one("f32[2,2] cholesky(p0), lower=true", "f32[2,2]")),
    "batch norm": Example(one("(f32[2,3], f32[3], f32[3]) batch-norm-training(p0, p1, p1), epsilon=0.001, feature_index=1", "f32[2,3]", "f32[3]")),
    "rng": Example(one("f32[4] rng(p0, p1), distribution=rng_uniform", "f32[]", "f32[]")),
    "rng-bit-generator": Example(one("(u64[2], u32[4]) rng-bit-generator(p0), algorithm=rng_three_fry", "u64[2]")),
    "rng state": Example("ENTRY e { ROOT s = u64[2] rng-get-and-update-state(), delta=4096 }"),
    "scan": Example(one("(f32[5], f32[]) scan(p0, p1), dimensions={0}, num_carries=1, is_reverse=true, is_associative=true, to_apply=step", "f32[5]", "f32[]", before="step { x = f32[] parameter(0) c = f32[] parameter(1) s = f32[] add(x, c) ROOT t = (f32[], f32[]) tuple(s, s) }\n")),
    "while": Example(one('(s32[], f32[4]) while(p0), condition=more, body=body, backend_config={"known_trip_count":{"n":"3"},"known_init_step":{"init":"0","step":"1"}}', "(s32[], f32[4])", before="more { t = (s32[], f32[4]) parameter(0) i = s32[] get-tuple-element(t), index=0 n = s32[] constant(3) ROOT l = pred[] compare(i, n), direction=LT }\nbody { t = (s32[], f32[4]) parameter(0) i = s32[] get-tuple-element(t), index=0 x = f32[4] get-tuple-element(t), index=1 o = s32[] constant(1) j = s32[] add(i, o) ROOT u = (s32[], f32[4]) tuple(j, x) }\n")),
    "conditional by pred": Example(one("f32[4] conditional(p0, p1, p1), true_computation=twice, false_computation={ x = f32[4] parameter(0) ROOT n = f32[4] negate(x) }", "pred[]", "f32[4]", before=_TWICE)),
    "conditional by index": Example(one("f32[4] conditional(p0, p1, p1), branch_computations={%twice, twice}", "s32[]", "f32[4]", before=_TWICE)),
    "composite call": Example(one("f32[4] call(p0), to_apply=twice, is_composite=true", "f32[4]", before=_TWICE)),
    "fusion": Example(one("f32[4] fusion(p0), kind=kLoop, calls=twice, output_to_operand_aliasing={{}: (0, {})}", "f32[4]", before=_TWICE)),
    "stochastic-convert": Example(one("s8[4] stochastic-convert(p0, p1)", "f32[4]", "u32[4]")),
    "set-dimension-size": Example(one("f32[<=4] set-dimension-size(p0, p1), dimensions={0}", "f32[4]", "s32[]")),
    "domain": Example(one('f32[] domain(p0), domain={kind="sharding", entry={maximal device=0}, exit={replicated}}', "f32[]")),
    "after-all and add-dependency": Example(entry("a = f32[2] parameter(0)", "t = token[] after-all()", "u = token[] after-all(t, t)", "ROOT r = f32[2] add-dependency(a, u)")),
    "opt-barrier": Example(one("(f32[], s32[]) opt-barrier(p0)", "(f32[], s32[])")),
    "copy-start": Example(entry("x = f32[4] parameter(0)", "s = (f32[4]{0:S(1)}, f32[4], u32[]) copy-start(x), cross_program_prefetch_index=0", "ROOT d = f32[4] copy-done(s)")),
    "generic asynchronous form": Example("%wrapped { a = f32[4] parameter(0) ROOT n = f32[4] negate(a) }, execution_thread=\"host\"\n" + entry("x = f32[4]{0} parameter(0)", "s = ((f32[4]{0}), f32[4]{0}, s32[]) async-start(x), async_execution_thread=\"host\", calls=%wrapped", "u = ((f32[4]{0}), f32[4]{0}, s32[]) async-update(s)", "ROOT d = f32[4]{0} async-done(u)")),
    "asynchronous sugar": Example(entry("x = f32[4] parameter(0)", "s = ((f32[4]), f32[2], s32[]) slice-start(x), slice={[0:2]}", "ROOT d = f32[2] slice-done(s)")),
    "custom call": Example(one('f32[4] custom-call(p0), custom_call_target="Sharding", sharding={replicated}, api_version=API_VERSION_STATUS_RETURNING', "f32[4]")),
    "custom call to the host": Example(one('f32[4] custom-call(p0), custom_call_target="MoveToHost"', "f32[4]")),
    "custom call nobody knows": Example(one('f32[4] custom-call(p0), custom_call_target="mystery", custom_call_has_side_effect=true, operand_layout_constraints={f32[4]{0}}, schedule=SCHEDULE_EARLIEST, literal=s32[2]{0} {1, 2}', "f32[4]"), refused="mystery"),
    "infeed": Example(entry("t = token[] after-all()", 'ROOT i = (f32[4], token[]) infeed(t), infeed_config="abc"')),
    "outfeed": Example(entry("x = f32[4] parameter(0)", "t = token[] after-all()", 'ROOT o = token[] outfeed(x, t), outfeed_shape=f32[4]{0}, outfeed_config="a"')),
    "all-reduce": Example(one("f32[4] all-reduce(p0), channel_id=1, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, constrain_layout=true, to_apply=sum", "f32[4]", before=_SUM), devices=4),
    "all-gather": Example(one("f32[8] all-gather(p0), channel_id=1, replica_groups=[2,2]<=[2,2]T(1,0), use_global_device_ids=true, dimensions={0}", "f32[4]"), devices=4),
    "reduce-scatter": Example(one("f32[2] reduce-scatter(p0), channel_id=1, replica_groups=mesh['x'=2,'y'=2] {'y'}, use_global_device_ids=true, dimensions={0}, to_apply=sum", "f32[4]", before=_SUM), devices=4),
    "all-to-all": Example(one("f32[4] all-to-all(p0), channel_id=1, replica_groups={{0,1},{2,3}}, dimensions={0}", "f32[4]"), devices=4),
    "collective-permute": Example(one("f32[4] collective-permute(p0), channel_id=1, source_target_pairs={{0,1},{1,0}}", "f32[4]"), devices=4),
    "collective-permute into a buffer": Example(one("f32[4,4] collective-permute(p0, p1, p2, p3), channel_id=1, source_target_pairs={{0,1},{1,0}}, slice_sizes={{1,2}}", "f32[4,4]", "f32[4,4]", "(s32[], s32[])", "(s32[], s32[])"), devices=2),
    "combined collective-permute": Example(one("(f32[4], f32[2]) collective-permute(p0, p1), channel_id=1, source_target_pairs={{0,1}}", "f32[4]", "f32[2]"), devices=2),
    "collective-broadcast": Example(one("f32[4] collective-broadcast(p0), channel_id=1, replica_groups={{1,0}}", "f32[4]"), devices=2),
    "ragged-all-to-all": Example(one("f32[4] ragged-all-to-all(p0, p0, p1, p1, p1, p1), channel_id=1, replica_groups={{0,1}}", "f32[4]", "s32[2]"), devices=2),
    "all-reduce in halves": Example(entry("x = f32[4] parameter(0)", "s = f32[4] all-reduce-start(x), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=sum", "ROOT d = f32[4] all-reduce-done(s)", before=_SUM), devices=2),
    "collective-permute in halves": Example(entry("x = f32[4] parameter(0)", "s = (f32[4], f32[4], u32[], u32[]) collective-permute-start(x), channel_id=1, source_target_pairs={{0,1}}", "ROOT d = f32[4] collective-permute-done(s)"), devices=2),
    "partition-id and replica-id": Example(entry("p = u32[] partition-id()", "q = u32[] replica-id()", "ROOT t = (u32[], u32[]) tuple(p, q)"), devices=2),
    "send and recv": Example(entry("x = f32[2] parameter(0)", "t = token[] after-all()", "r = (f32[2], u32[], token[]) recv(t), channel_id=1, frontend_attributes={_xla_send_recv_source_target_pairs={{0,1},{1,0}}}", "s = (f32[2], u32[], token[]) send(x, t), channel_id=1, frontend_attributes={_xla_send_recv_source_target_pairs={{0,1},{1,0}}}", "e = token[] send-done(s), channel_id=1", "d = (f32[2], token[]) recv-done(r), channel_id=1", "ROOT g = f32[2] get-tuple-element(d), index=0"), devices=2),
    "send to the host": Example(entry("x = f32[2] parameter(0)", "t = token[] after-all()", "s = (f32[2], u32[], token[]) send(x, t), channel_id=3, is_host_transfer=true", "ROOT e = token[] send-done(s), channel_id=3, is_host_transfer=true"), devices=2, refused="host"),
    "all-gather in halves": Example(entry("x = f32[4] parameter(0)", "s = (f32[4], f32[8]) all-gather-start(x), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, dimensions={0}", "ROOT d = f32[8] all-gather-done(s)"), devices=2),
    "batch norm, inference": Example(one("f32[2,3] batch-norm-inference(p0, p1, p1, p1, p1), epsilon=0.001, feature_index=1", "f32[2,3]", "f32[3]")),
    "batch norm, gradient": Example(one("(f32[2,3], f32[3], f32[3]) batch-norm-grad(p0, p1, p1, p1, p0), epsilon=0.001, feature_index=1", "f32[2,3]", "f32[3]")),
    "dynamic-reshape": Example(one("f32[<=2,<=2] dynamic-reshape(p0, s32[] constant(2), s32[] constant(2))", "f32[4]")),
}  # fmt: skip
