"""`shard_map`: every collective, rings, pipelines, expert parallelism, manual and automatic axes together."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh

from benchmarks.zoo.program import P, Program, constrain, integers, mesh_of, normal, put, scaled


def mapped(mesh: Mesh, inputs: Any, outputs: Any, **options: Any) -> Any:
    return partial(jax.shard_map, mesh=mesh, in_specs=inputs, out_specs=outputs, **options)


def ring(mesh: Mesh, axis: str, by: int = 1) -> list[tuple[int, int]]:
    n = mesh.shape[axis]
    return [(k, (k + by) % n) for k in range(n)]


def all_reductions(devices: int) -> Program:
    mesh = mesh_of(devices, "x")

    @jax.jit
    @mapped(mesh, P("x"), (P(), P(), P(), P("x"), P()))
    def run(a: Any) -> Any:
        total = lax.psum(a.sum(0), "x")
        most, least = lax.pmax(a.max(0), "x"), lax.pmin(a.min(0), "x")
        mean = lax.pmean(a.sum(0), "x")
        return total, most, least, a - mean / a.shape[0], lax.psum(lax.psum(a, "x").sum(), ())

    return Program(run, (put(mesh, normal(1, 16, 8), "x"),), mesh)


def gathers_and_scatters(devices: int) -> Program:
    mesh = mesh_of(devices, "x")

    @jax.jit
    @mapped(mesh, P("x"), (P(), P("x"), P()), check_vma=False)
    def run(a: Any) -> Any:
        whole = lax.all_gather(a, "x", tiled=True)
        product = lax.psum_scatter(a.T @ a, "x", tiled=True)
        stacked = lax.all_gather(a, "x", axis=1)
        return whole, product, stacked.transpose(1, 0, 2).reshape(whole.shape)

    return Program(run, (put(mesh, normal(1, 16, 8), "x"),), mesh)


def all_to_alls(devices: int) -> Program:
    """Transposes of a matrix that is divided by rows, with and without tiling."""
    mesh = mesh_of(devices, "x")

    @jax.jit
    @mapped(mesh, P("x"), (P(None, "x"), P("x")))
    def run(a: Any) -> Any:
        columns = lax.all_to_all(a, "x", 1, 0, tiled=True)
        return columns, lax.all_to_all(columns * 2, "x", 0, 1, tiled=True) + a

    return Program(run, (put(mesh, normal(1, 16, 24), "x"),), mesh)


def permutations(devices: int) -> Program:
    """Ring shifts, a shift that leaves gaps, and a reversal."""
    mesh = mesh_of(devices, "x")
    n = devices

    @jax.jit
    @mapped(mesh, P("x"), (P("x"), P("x"), P("x")))
    def run(a: Any) -> Any:
        last = lax.ppermute(a[-1:], "x", ring(mesh, "x"))
        rolled = jnp.concatenate([last, a[:-1]])
        first = lax.ppermute(a[:1], "x", [(k + 1, k) for k in range(n - 1)])
        shifted = jnp.concatenate([a[1:], first])
        mirrored = lax.ppermute(a[::-1], "x", [(k, n - 1 - k) for k in range(n)])
        return rolled, shifted, mirrored

    return Program(run, (put(mesh, normal(1, 16, 5), "x"),), mesh)


def ragged_all_to_all(devices: int) -> Program:
    """Rows of uneven numbers are exchanged between all pairs of devices and returned, so the result is known."""
    mesh = mesh_of(devices, "x")
    if devices == 1:
        run = jax.jit(lambda a, _: 2 * a)
        return Program(run, (normal(1, 128, 4), integers(2, 2, 8, 8)), mesh)
    n, rows = devices, 128 // devices

    @jax.jit
    @mapped(mesh, (P("x"), P("x")), P("x"), check_vma=False)
    def run(a: Any, _: Any) -> Any:
        me = lax.axis_index("x")
        base = rows // n
        counts = jnp.full((n,), base, jnp.int32)
        offsets = jnp.arange(n, dtype=jnp.int32) * base
        there = jnp.full((n,), me * base, jnp.int32)
        out = lax.ragged_all_to_all(
            a, jnp.zeros_like(a), offsets, counts, there, counts, axis_name="x"
        )
        return lax.ragged_all_to_all(
            2 * out, jnp.zeros_like(a), offsets, counts, there, counts, axis_name="x"
        )

    arguments = (put(mesh, normal(1, 128, 4), "x"), put(mesh, integers(2, 2, 8, 8), "x"))
    return Program(run, arguments, mesh)


def ring_attention(devices: int) -> Program:
    """Attention over a divided sequence; keys and values go round the ring, the softmax is kept running."""
    mesh = mesh_of(devices, "seq")

    def local(q: Any, k: Any, v: Any) -> Any:
        n, me = lax.axis_size("seq"), lax.axis_index("seq")
        rows = q.shape[0]

        def hop(carry: Any, step: Any) -> Any:
            k, v, top, total, out = carry
            source = (me - step) % n
            mask = (me * rows + jnp.arange(rows))[:, None] >= source * rows + jnp.arange(rows)
            scores = jnp.einsum("qhd,khd->hqk", q, k) / 4
            scores = jnp.where(mask, scores, -1e9)
            highest = jnp.maximum(top, scores.max(-1))
            p = jnp.exp(scores - highest[..., None])
            old = jnp.exp(top - highest)
            total = total * old + p.sum(-1)
            out = out * old[..., None] + jnp.einsum("hqk,khd->hqd", p, v)
            k, v = (lax.ppermute(x, "seq", ring(mesh, "seq")) for x in (k, v))
            return (k, v, highest, total, out), None

        h, d = q.shape[1:]
        start = (jnp.full((h, rows), -1e9), jnp.zeros((h, rows)), jnp.zeros((h, rows, d)))
        start = jax.tree.map(lambda x: lax.pcast(x, ("seq",), to="varying"), start)
        (_, _, _, total, out), _ = lax.scan(hop, (k, v, *start), jnp.arange(n))
        return (out / total[..., None]).transpose(1, 0, 2)

    attend = mapped(mesh, (P("seq"),) * 3, P("seq"))(local)

    @jax.jit
    def run(q: Any, k: Any, v: Any) -> Any:
        return jax.value_and_grad(lambda *x: jnp.sum(attend(*x) ** 2), argnums=(0, 1, 2))(q, k, v)

    return Program(run, tuple(put(mesh, normal(k, 32, 2, 16), "seq") for k in range(3)), mesh)


def ulysses_attention(devices: int) -> Program:
    """Attention over a divided sequence by exchanging sequence for heads and back."""
    mesh = mesh_of(devices, "seq")

    def local(q: Any, k: Any, v: Any) -> Any:
        q, k, v = (lax.all_to_all(x, "seq", 1, 0, tiled=True) for x in (q, k, v))
        p = jax.nn.softmax(jnp.einsum("qhd,khd->hqk", q, k) / 4)
        out = jnp.einsum("hqk,khd->qhd", p, v)
        return lax.all_to_all(out, "seq", 0, 1, tiled=True)

    attend = mapped(mesh, (P("seq"),) * 3, P("seq"))(local)
    run = jax.jit(jax.value_and_grad(lambda *x: jnp.sum(attend(*x) ** 3), argnums=(0, 2)))
    return Program(run, tuple(put(mesh, normal(k, 32, 8, 16), "seq") for k in range(3)), mesh)


def pipeline_stages(devices: int) -> Program:
    """Microbatches through eight layers, a group of layers on each device; the gradient runs the pipeline backwards."""
    mesh = mesh_of(devices, "stage")
    n, micro = devices, 8

    def local(w: Any, xs: Any) -> Any:
        me = lax.axis_index("stage")

        def apply(x: Any) -> Any:
            return lax.scan(lambda h, layer: (jnp.tanh(h @ layer), None), x, w)[0]

        def tick(carry: Any, t: Any) -> Any:
            held, out = carry
            held = jnp.where(me == 0, xs[jnp.minimum(t, micro - 1)], held)
            done = apply(held)
            slot = jnp.clip(t - (n - 1), 0, micro - 1)
            out = jnp.where(t >= n - 1, out.at[slot].set(done), out)
            return (lax.ppermute(done, "stage", ring(mesh, "stage")), out), None

        zero = lax.pcast((jnp.zeros(xs.shape[1:]), jnp.zeros(xs.shape)), ("stage",), to="varying")
        (_, out), _ = lax.scan(tick, zero, jnp.arange(micro + n - 1))
        return lax.psum(jnp.where(me == n - 1, out, 0), "stage")

    forward = mapped(mesh, (P("stage"), P()), P())(local)
    run = jax.jit(jax.value_and_grad(lambda w, xs: jnp.mean(forward(w, xs) ** 2)))
    return Program(run, (put(mesh, scaled(1, 8, 16, 16) * 3, "stage"), normal(2, 8, 4, 16)), mesh)


def expert_exchange(devices: int) -> Program:
    """Mixture of experts: tokens go to their expert's device by all-to-all, with a capacity, and come back."""
    mesh = mesh_of(devices, "x")
    # Each expert has as many places as a device has tokens, so that none is dropped with any number of devices.
    experts, capacity, d = 8, 64 // devices, 16

    def local(x: Any, gate: Any, w: Any) -> Any:
        probability = jax.nn.softmax(x @ gate)
        expert = probability.argmax(-1)
        onehot = jax.nn.one_hot(expert, experts)
        place = (jnp.cumsum(onehot, 0) - 1) * onehot
        slot = jax.nn.one_hot(place.sum(-1).astype(jnp.int32), capacity)
        dispatch = onehot[:, :, None] * slot[:, None, :]
        sent = jnp.einsum("td,tec->ecd", x, dispatch)
        got = lax.all_to_all(sent, "x", 0, 1, tiled=True)
        done = jax.nn.gelu(jnp.einsum("ecd,edf->ecf", got, w))
        back = lax.all_to_all(done, "x", 1, 0, tiled=True)
        return jnp.einsum("ecd,tec->td", back, dispatch) * probability.max(-1, keepdims=True)

    layer = mapped(mesh, (P("x"), P(), P("x")), P("x"))(local)
    run = jax.jit(jax.value_and_grad(lambda w, x, g: jnp.sum(layer(x, g, w) ** 2)))
    x = put(mesh, normal(1, 64, d), "x")
    return Program(run, (put(mesh, scaled(2, 8, d, d), "x"), x, scaled(3, d, 8)), mesh)


def collective_matmul(devices: int) -> Program:
    """Product with a gathered operand, done piece by piece while the pieces go round the ring."""
    mesh = mesh_of(devices, "x")

    @jax.jit
    @mapped(mesh, (P("x"), P(None, "x")), P(None, "x"))
    def run(a: Any, b: Any) -> Any:
        n, me, rows = lax.axis_size("x"), lax.axis_index("x"), a.shape[0]
        out = lax.pcast(jnp.zeros((n * rows, b.shape[1])), ("x",), to="varying")

        def hop(k: Any, carry: Any) -> Any:
            a, out = carry
            out = lax.dynamic_update_slice(out, a @ b, (((me - k) % n) * rows, 0))
            return lax.ppermute(a, "x", ring(mesh, "x")), out

        return lax.fori_loop(0, n, hop, (a, out))[1]

    return Program(
        run, (put(mesh, normal(1, 32, 16), "x"), put(mesh, normal(2, 16, 32), None, "x")), mesh
    )


def partly_manual(devices: int) -> Program:
    """One axis manual, the other left to the partitioner."""
    mesh = mesh_of(devices, "x", "y")

    def local(a: Any, w: Any) -> Any:
        h = jax.nn.relu(a @ w)
        return h - lax.pmean(h.mean(0, keepdims=True), "x")

    inner = mapped(mesh, (P("x"), P()), P("x"), axis_names={"x"})(local)

    @jax.jit
    def run(a: Any, w: Any) -> Any:
        h = constrain(mesh, inner(a, w), "x", "y")
        return h, jnp.sum(h**2, 1)

    return Program(
        run, (put(mesh, normal(1, 16, 12), "x"), put(mesh, normal(2, 12, 16), None, "y")), mesh
    )


def halo_exchange(devices: int) -> Program:
    """Wave equation on a divided domain; edges are exchanged in each step of a loop."""
    mesh = mesh_of(devices, "x")

    def local(u: Any, before: Any) -> Any:
        def step(_: Any, state: Any) -> Any:
            u, before = state
            left = lax.ppermute(u[-1:], "x", ring(mesh, "x"))
            right = lax.ppermute(u[:1], "x", ring(mesh, "x", -1))
            wide = jnp.concatenate([left, u, right])
            after = 2 * u - before + 0.1 * (wide[2:] - 2 * u + wide[:-2])
            return after, u

        return lax.fori_loop(0, 20, step, (u, before))

    run = jax.jit(mapped(mesh, (P("x"), P("x")), (P("x"), P("x")))(local))
    return Program(run, (put(mesh, normal(1, 64, 3), "x"), put(mesh, normal(2, 64, 3), "x")), mesh)


def two_axis_groups(devices: int) -> Program:
    """Collectives over one axis, the other, and both, of a mesh of two axes."""
    mesh = mesh_of(devices, "x", "y")

    @jax.jit
    @mapped(mesh, P("x", "y"), (P("x", None), P(None, "y"), P(("x", "y")), P()), check_vma=False)
    def run(a: Any) -> Any:
        rows = lax.all_gather(a, "y", axis=1, tiled=True)
        columns = lax.psum(a.sum(0, keepdims=True), "x")
        corner = (lax.axis_index("x") * a.shape[0], lax.axis_index("y") * a.shape[1])
        own_part = lax.dynamic_update_slice(jnp.zeros((16, 8)), a, corner)
        both = lax.psum_scatter(own_part, ("x", "y"), tiled=True)
        return rows, columns, both, lax.pmax(a.max(), ("x", "y"))

    return Program(run, (put(mesh, normal(1, 16, 8), "x", "y"),), mesh)
