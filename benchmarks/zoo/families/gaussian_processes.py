"""Gaussian processes and linear algebra: Cholesky, triangular solves, eigenvalues, QR, least squares."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg as linalg

from benchmarks.zoo.program import Program, mesh_of, normal, put, uniform


def kernel(a: Any, b: Any, length: Any) -> Any:
    return jnp.exp(-0.5 * ((a[:, None] - b[None]) ** 2).sum(-1) / length**2)


def gp_posterior(devices: int) -> Program:
    mesh = mesh_of(devices, "x")

    @jax.jit
    def run(x: Any, y: Any, new: Any) -> Any:
        factor = jnp.linalg.cholesky(kernel(x, x, 1.0) + 0.1 * jnp.eye(len(x)))
        alpha = linalg.cho_solve((factor, True), y)
        across = kernel(new, x, 1.0)
        v = linalg.solve_triangular(factor, across.T, lower=True)
        return across @ alpha, 1 - (v**2).sum(0)

    arguments = (
        put(mesh, normal(1, 32, 2), "x"),
        put(mesh, normal(2, 32), "x"),
        put(mesh, normal(3, 16, 2), "x"),
    )
    return Program(run, arguments, mesh)


def gp_likelihood_gradient(devices: int) -> Program:
    """Gradient of the marginal likelihood, for several length scales by vmap."""
    mesh = mesh_of(devices, "scale")

    def likelihood(length: Any, x: Any, y: Any) -> Any:
        factor = jnp.linalg.cholesky(kernel(x, x, length) + 0.1 * jnp.eye(len(x)))
        white = linalg.solve_triangular(factor, y, lower=True)
        return -0.5 * (white**2).sum() - jnp.log(jnp.diag(factor)).sum()

    run = jax.jit(jax.vmap(jax.value_and_grad(likelihood), (0, None, None)))
    return Program(
        run,
        (put(mesh, uniform(1, 8, low=0.5, high=2), "scale"), normal(2, 24, 2), normal(3, 24)),
        mesh,
    )


def least_squares(devices: int) -> Program:
    """QR of tall matrices, solve, determinant and inverse of divided batches."""
    mesh = mesh_of(devices, "batch")

    @jax.jit
    def run(a: Any, b: Any) -> Any:
        q, r = jnp.linalg.qr(a)
        x = jax.vmap(lambda r, c: linalg.solve_triangular(r, c))(r, jnp.einsum("bij,bi->bj", q, b))
        square = jnp.einsum("bij,bik->bjk", a, a) / 12 + jnp.eye(5)
        sign, logdet = jnp.linalg.slogdet(square)
        return x, jnp.linalg.solve(square, x[..., None]), jnp.linalg.inv(square), sign, logdet

    return Program(
        run, (put(mesh, normal(1, 8, 12, 5), "batch"), put(mesh, normal(2, 8, 12), "batch")), mesh
    )


def principal_components(devices: int) -> Program:
    mesh = mesh_of(devices, "rows")

    @jax.jit
    def run(x: Any) -> Any:
        centered = x - x.mean(0)
        values, vectors = jnp.linalg.eigh(centered.T @ centered / len(x))
        projected = centered @ vectors[:, -2:]
        return values, projected**2, jnp.linalg.norm(centered, 2, axis=1)

    x = normal(1, 64, 6) * [1.0, 2, 3, 4, 5, 6]
    return Program(run, (put(mesh, x.astype("float32"), "rows"),), mesh)


def singular_values(devices: int) -> Program:
    """Low-rank approximation by singular values, and powers of a matrix by squaring."""
    mesh = mesh_of(devices, "batch")

    @jax.jit
    def run(a: Any) -> Any:
        u, s, v = jnp.linalg.svd(a, full_matrices=False)
        near = jnp.einsum("bik,bk,bkj->bij", u[..., :2], s[:, :2], v[:, :2])
        square = a[:, :5] / 5
        return near, s, jax.scipy.linalg.expm(square[0]), jnp.linalg.matrix_power(square, 5)

    return Program(run, (put(mesh, normal(1, 8, 8, 5), "batch"),), mesh)


def sinkhorn(devices: int) -> Program:
    """Optimal transport by alternating log-sum-exps, with its gradient through the loop."""
    mesh = mesh_of(devices, "x")

    def cost(x: Any, y: Any) -> Any:
        c = ((x[:, None] - y[None]) ** 2).sum(-1)

        def step(state: Any, _: Any) -> Any:
            f, g = state
            f = -0.5 * jax.nn.logsumexp((g[None] - c) / 0.5, 1)
            g = -0.5 * jax.nn.logsumexp((f[:, None] - c) / 0.5, 0)
            return (f, g), None

        (f, g), _ = jax.lax.scan(step, (jnp.zeros(len(x)), jnp.zeros(len(y))), None, length=8)
        return jnp.sum(jnp.exp((f[:, None] + g[None] - c) / 0.5) * c)

    run = jax.jit(jax.value_and_grad(cost, (0, 1)))
    return Program(run, (put(mesh, normal(1, 32, 2), "x"), put(mesh, normal(2, 24, 2), "x")), mesh)
