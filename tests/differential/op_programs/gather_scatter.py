"""Indexed reads and writes."""

from __future__ import annotations

from tests.differential.op_programs.table import Draw, op, text


@op
def take_rows(draw: Draw) -> str:
    v, d, b, s = draw.size(), draw.size(), draw.size(), draw.size()
    return text(
        f"x = f32[{v},{d}] parameter(0)",
        f"i = s32[{b},{s},1] parameter(1)",
        f"ROOT r = f32[{b},{s},{d}] gather(x, i), offset_dims={{2}}, collapsed_slice_dims={{0}}, "
        f"start_index_map={{0}}, index_vector_dim=2, slice_sizes={{1,{d}}}",
    )


@op
def gather_points(draw: Draw) -> str:
    a, b, n = draw.size(), draw.size(), draw.size()
    kind = str(draw.rng.choice(["s32", "u8", "s64", "u32"]))
    return text(
        f"x = f32[{a},{b}] parameter(0)",
        f"i = {kind}[2,{n}] parameter(1)",
        f"ROOT r = f32[{n}] gather(x, i), offset_dims={{}}, collapsed_slice_dims={{0,1}}, "
        "start_index_map={1,0}, index_vector_dim=0, slice_sizes={1,1}",
    )


@op
def gather_windows(draw: Draw) -> str:
    a, b, n = draw.size(), draw.size() + 2, draw.size()
    return text(
        f"x = f32[{a},{b}] parameter(0)",
        f"i = s32[{n}] parameter(1)",
        f"ROOT r = f32[{a},{n},2] gather(x, i), offset_dims={{0,2}}, collapsed_slice_dims={{}}, "
        f"start_index_map={{1}}, index_vector_dim=1, slice_sizes={{{a},2}}",
    )


@op
def take_along_axis(draw: Draw) -> str:
    b, v, k = draw.size(), draw.size(), draw.size()
    return text(
        f"x = f32[{b},{v}] parameter(0)",
        f"i = s32[{b},{k},1] parameter(1)",
        f"ROOT r = f32[{b},{k}] gather(x, i), offset_dims={{}}, collapsed_slice_dims={{1}}, "
        "start_index_map={1}, operand_batching_dims={0}, start_indices_batching_dims={0}, "
        "index_vector_dim=2, slice_sizes={1,1}",
    )


def scatter_rows(draw: Draw, combiner: str) -> str:
    v, d, b = draw.size(), draw.size(), draw.size()
    return text(
        f"x = f32[{v},{d}] parameter(0)",
        f"i = s32[{b},1] parameter(1)",
        f"u = f32[{b},{d}] parameter(2)",
        f"ROOT r = f32[{v},{d}] scatter(x, i, u), update_window_dims={{1}}, inserted_window_dims={{0}}, "
        f"scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply={combiner}",
    )


@op
def scatter_add(draw: Draw) -> str:
    return scatter_rows(draw, "add")


@op
def scatter_max(draw: Draw) -> str:
    return scatter_rows(draw, "max")


@op
def scatter_largest(draw: Draw) -> str:
    return scatter_rows(draw, "largest")


@op
def scatter_assign(draw: Draw) -> str:
    return scatter_rows(draw, "last")


@op
def scatter_batched(draw: Draw) -> str:
    b, v, k = draw.size(), draw.size(), draw.size()
    return text(
        f"x = f32[{b},{v}] parameter(0)",
        f"i = s32[{b},{k},1] parameter(1)",
        f"u = f32[{b},{k}] parameter(2)",
        f"ROOT r = f32[{b},{v}] scatter(x, i, u), update_window_dims={{}}, inserted_window_dims={{1}}, "
        "scatter_dims_to_operand_dims={1}, input_batching_dims={0}, scatter_indices_batching_dims={0}, "
        "index_vector_dim=2, to_apply=add",
    )
