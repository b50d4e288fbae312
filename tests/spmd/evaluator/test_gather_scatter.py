"""gather and scatter against the formulas of XLA's operation semantics, element by element."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest


def start_vector(indices, index_vector_dim, batch):
    """The index vector at batch position ``batch``."""
    if index_vector_dim == indices.ndim:
        return [int(indices[tuple(batch)])]
    place = list(batch)
    place.insert(index_vector_dim, slice(None))
    return [int(i) for i in indices[tuple(place)]]


def naive_gather(x, indices, out_shape, a):
    out = np.empty(out_shape, x.dtype)
    batch_dims = [d for d in range(len(out_shape)) if d not in a["offset_dims"]]
    window_dims = [
        d for d in range(x.ndim) if d not in a["collapsed"] and d not in a.get("batching", ())
    ]
    for position in np.ndindex(*out_shape):
        batch = [position[d] for d in batch_dims]
        start = [0] * x.ndim
        for k, d in enumerate(a["map"]):
            value = start_vector(indices, a["vector_dim"], batch)[k]
            start[d] = min(max(value, 0), x.shape[d] - a["sizes"][d])
        for d, s in zip(a.get("batching", ()), a.get("indices_batching", ()), strict=True):
            start[d] = batch[s if s < a["vector_dim"] else s - 1]
        for d, o in zip(window_dims, a["offset_dims"], strict=True):
            start[d] += position[o]
        out[position] = x[tuple(start)]
    return out


GATHERS = {
    "rows": ((5, 4), (3, 1), (3, 4), {"offset_dims": (1,), "collapsed": (0,), "map": (0,), "vector_dim": 1, "sizes": (1, 4)}),
    "implicit vector": ((5, 4), (3,), (3, 4), {"offset_dims": (1,), "collapsed": (0,), "map": (0,), "vector_dim": 1, "sizes": (1, 4)}),
    "windows": ((6, 7), (2, 3), (2, 4, 3), {"offset_dims": (1, 2), "collapsed": (), "map": (1, 0), "vector_dim": 0, "sizes": (4, 3)}),
    "offset first": ((5, 4), (3, 2), (2, 3), {"offset_dims": (0,), "collapsed": (0,), "map": (0, 1), "vector_dim": 1, "sizes": (1, 2)}),
    "whole operand": ((2, 3), (2, 1), (2, 2, 3), {"offset_dims": (1, 2), "collapsed": (), "map": (0,), "vector_dim": 1, "sizes": (2, 3)}),
    "batched": ((3, 5, 4), (3, 2, 1), (3, 2, 4), {
        "offset_dims": (2,), "collapsed": (1,), "map": (1,), "vector_dim": 2, "sizes": (1, 1, 4), "batching": (0,), "indices_batching": (0,),
    }),
    "batched second": ((5, 3), (2, 3, 1), (2, 3), {
        "offset_dims": (), "collapsed": (0,), "map": (0,), "vector_dim": 2, "sizes": (1, 1), "batching": (1,), "indices_batching": (1,),
    }),
}  # fmt: skip
GATHERS["windows"] = ((6, 7), (2, 3), (3, 4, 3), GATHERS["windows"][3])


def braces(values):
    return "{" + ",".join(map(str, values)) + "}"


@pytest.mark.parametrize("name", GATHERS)
@pytest.mark.parametrize("index_type", ["s32", "u32", "s64", "u8"])
def test_gather(run, rng, name, index_type):
    shape, index_shape, out_shape, a = GATHERS[name]
    x = rng.permutation(int(np.prod(shape))).reshape(shape).astype(np.float32)
    low = -3 if index_type[0] == "s" else 0
    indices = rng.integers(low, 9, index_shape).astype(
        index_type.replace("s", "int").replace("u", "uint")
    )
    if "int" in indices.dtype.name and index_type == "u32":
        indices.reshape(-1)[0] = 2**32 - 1
    body = f"""x = f32[{",".join(map(str, shape))}] parameter(0) i = {index_type}[{",".join(map(str, index_shape))}] parameter(1)
      ROOT r = f32[{",".join(map(str, out_shape))}] gather(x, i), offset_dims={braces(a["offset_dims"])},
        collapsed_slice_dims={braces(a["collapsed"])}, start_index_map={braces(a["map"])}, index_vector_dim={a["vector_dim"]},
        slice_sizes={braces(a["sizes"])}, operand_batching_dims={braces(a.get("batching", ()))},
        start_indices_batching_dims={braces(a.get("indices_batching", ()))}"""
    np.testing.assert_array_equal(run(body, x, indices)[0], naive_gather(x, indices, out_shape, a))


def naive_scatter(x, indices, updates, a, combine):
    """Windows partly outside are skipped as a whole; one index vector's window is done before the next one's."""
    out = x.copy()
    scatter_dims = [d for d in range(updates.ndim) if d not in a["window"]]
    window_dims = [
        d for d in range(x.ndim) if d not in a["inserted"] and d not in a.get("batching", ())
    ]
    sizes = {d: updates.shape[u] for d, u in zip(window_dims, a["window"], strict=True)}
    for position in sorted(
        np.ndindex(*updates.shape), key=lambda position: [position[d] for d in scatter_dims]
    ):
        batch = [position[d] for d in scatter_dims]
        start = [0] * x.ndim
        for k, d in enumerate(a["map"]):
            start[d] = start_vector(indices, a["vector_dim"], batch)[k]
        for d, s in zip(a.get("batching", ()), a.get("indices_batching", ()), strict=True):
            start[d] = batch[s if s < a["vector_dim"] else s - 1]
        if not all(0 <= start[d] <= x.shape[d] - sizes.get(d, 1) for d in range(x.ndim)):
            continue
        for d, u in zip(window_dims, a["window"], strict=True):
            start[d] += position[u]
        out[tuple(start)] = combine(out[tuple(start)], updates[position])
    return out


SCATTERS = {
    "rows": ((5, 4), (6, 1), (6, 4), {"window": (1,), "inserted": (0,), "map": (0,), "vector_dim": 1}),
    "points": ((5, 4), (8, 2), (8,), {"window": (), "inserted": (0, 1), "map": (0, 1), "vector_dim": 1}),
    "windows": ((6, 7), (2, 3), (3, 2, 3), {"window": (1, 2), "inserted": (), "map": (1, 0), "vector_dim": 0}),
    "window first": ((5, 4), (6, 1), (4, 6), {"window": (0,), "inserted": (0,), "map": (0,), "vector_dim": 1}),
    "batched": ((3, 5, 4), (3, 4, 1), (3, 4, 4), {
        "window": (2,), "inserted": (1,), "map": (1,), "vector_dim": 2, "batching": (0,), "indices_batching": (0,),
    }),
    "overlapping windows first": ((8, 5), (9, 1), (3, 5, 9), {
        "window": (0, 1), "inserted": (), "map": (0,), "vector_dim": 1,
    }),
    "overlapping windows between": ((7, 6), (2, 3, 4), (3, 2, 2, 4), {
        "window": (0, 2), "inserted": (), "map": (1, 0), "vector_dim": 1,
    }),
    "overlapping windows, batched": ((3, 6), (5, 1, 3), (2, 5, 3), {
        "window": (0,), "inserted": (), "map": (1,), "vector_dim": 1, "batching": (0,), "indices_batching": (2,),
    }),
}  # fmt: skip
COMBINERS = {
    "add": lambda a, b: a + b,
    "max": max,
    "second": lambda a, b: b,
    "minus": lambda a, b: a - b,
    "mix": lambda a, b: 2 * a + b,
}


@pytest.mark.parametrize("name", SCATTERS)
@pytest.mark.parametrize("combiner", COMBINERS)
def test_scatter(run, rng, name, combiner):
    shape, index_shape, update_shape, a = SCATTERS[name]
    x = rng.integers(-5, 6, shape).astype(np.float32)
    updates = rng.integers(-5, 6, update_shape).astype(np.float32)
    indices = rng.integers(-1, 6, index_shape).astype(np.int32)
    before = "mix { x = f32[] parameter(0) y = f32[] parameter(1) t = f32[] add(x, x) ROOT r = f32[] add(t, y) }"
    body = f"""x = f32[{",".join(map(str, shape))}] parameter(0) i = s32[{",".join(map(str, index_shape))}] parameter(1)
      u = f32[{",".join(map(str, update_shape))}] parameter(2)
      ROOT r = f32[{",".join(map(str, shape))}] scatter(x, i, u), update_window_dims={braces(a["window"])},
        inserted_window_dims={braces(a["inserted"])}, scatter_dims_to_operand_dims={braces(a["map"])},
        index_vector_dim={a["vector_dim"]}, input_batching_dims={braces(a.get("batching", ()))},
        scatter_indices_batching_dims={braces(a.get("indices_batching", ()))}, to_apply={combiner}"""
    before_run = x.copy()
    got = run(body, x, indices, updates, before=before)[0]
    np.testing.assert_array_equal(got, naive_scatter(x, indices, updates, a, COMBINERS[combiner]))
    np.testing.assert_array_equal(x, before_run)


def test_scatter_of_two_operands_at_once(run):
    """Keep the update with the larger value, and its label."""
    before = """f { v = f32[] parameter(0) l = s32[] parameter(1) w = f32[] parameter(2) m = s32[] parameter(3)
      gt = pred[] compare(w, v), direction=GT a = f32[] select(gt, w, v) b = s32[] select(gt, m, l)
      ROOT t = (f32[], s32[]) tuple(a, b) }"""
    body = """v = f32[3] parameter(0) l = s32[3] parameter(1) i = s32[5,1] parameter(2) w = f32[5] parameter(3) m = s32[5] parameter(4)
      ROOT r = (f32[3], s32[3]) scatter(v, l, i, w, m), update_window_dims={}, inserted_window_dims={0},
        scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=f"""
    values, labels = run(
        body,
        np.zeros(3, np.float32),
        np.full(3, -1, np.int32),
        np.array([[0], [2], [0], [2], [0]], np.int32),
        np.array([1, 4, 3, 2, -1], np.float32),
        np.arange(5, dtype=np.int32),
        before=before,
    )
    assert values.tolist() == [3, 0, 4]
    assert labels.tolist() == [2, -1, 1]


def test_bf16_scatter_add_rounds_once(run):
    bf16 = ml_dtypes.bfloat16
    before = "f { a = bf16[] parameter(0) b = bf16[] parameter(1) ROOT r = bf16[] add(a, b) }"
    body = """x = bf16[1] parameter(0) i = s32[256,1] parameter(1) u = bf16[256] parameter(2)
      ROOT r = bf16[1] scatter(x, i, u), update_window_dims={}, inserted_window_dims={0},
        scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=f"""
    ones = np.full(256, 2.0**-8, bf16)
    got = run(body, np.ones(1, bf16), np.zeros((256, 1), np.int32), ones, before=before)[0]
    assert got.tolist() == [2]
