"""Differential equations and linear systems: stencils, spectral methods, multigrid, conjugate gradients, particles."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.zoo.program import Program, constrain, mesh_of, normal, put, uniform


def heat_stencil(devices: int) -> Program:
    mesh = mesh_of(devices, "x", "y")

    @jax.jit
    def run(u: Any) -> Any:
        def step(u: Any, _: Any) -> Any:
            p = jnp.pad(u, 1, mode="edge")
            around = p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2]
            return constrain(mesh, u + 0.1 * (around - 4 * u), "x", "y"), u.mean()

        return lax.scan(step, u, None, length=10)

    return Program(run, (put(mesh, normal(1, 24, 24), "x", "y"),), mesh)


def navier_stokes_spectral(devices: int) -> Program:
    """Vorticity of a flow in two dimensions by Fourier transforms."""
    mesh = mesh_of(devices, "x")
    n = 16

    @jax.jit
    def run(w: Any) -> Any:
        k = jnp.fft.fftfreq(n, 1 / n)
        kx, ky = k[:, None], jnp.fft.rfftfreq(n, 1 / n)[None]
        laplacian = kx**2 + ky**2
        inverse = jnp.where(laplacian == 0, 0, 1 / jnp.where(laplacian == 0, 1, laplacian))

        def step(hat: Any, _: Any) -> Any:
            psi = hat * inverse
            u, v = jnp.fft.irfft2(1j * ky * psi), jnp.fft.irfft2(-1j * kx * psi)
            wx, wy = jnp.fft.irfft2(1j * kx * hat), jnp.fft.irfft2(1j * ky * hat)
            change = -jnp.fft.rfft2(u * wx + v * wy) - 0.01 * laplacian * hat
            return hat + 0.01 * change, jnp.abs(hat).max()

        hat, sizes = lax.scan(step, jnp.fft.rfft2(w), None, length=5)
        return jnp.fft.irfft2(hat), sizes

    return Program(run, (put(mesh, normal(1, n, n), "x"),), mesh)


def burgers_upwind(devices: int) -> Program:
    """Shocks: limited slopes with rolls and selects, a step size from the largest speed."""
    mesh = mesh_of(devices, "x")

    @jax.jit
    def run(u: Any) -> Any:
        def step(_: Any, state: Any) -> Any:
            u, time = state
            dt = 0.4 / jnp.abs(u).max()
            back, ahead = u - jnp.roll(u, 1), jnp.roll(u, -1) - u
            slope = jnp.where(
                back * ahead > 0, jnp.sign(back) * jnp.minimum(abs(back), abs(ahead)), 0
            )
            left, right = u + slope / 2, jnp.roll(u - slope / 2, -1)
            speed = jnp.maximum(abs(left), abs(right))
            flux = (left**2 + right**2) / 4 - speed * (right - left) / 2
            return u - dt * (flux - jnp.roll(flux, 1)), time + dt

        return lax.fori_loop(0, 12, step, (u, 0.0))

    return Program(run, (put(mesh, uniform(1, 64, low=-1), "x"),), mesh)


def multigrid_poisson(devices: int) -> Program:
    """V-cycles: smoothing, restriction by means of blocks, interpolation by repetition."""
    mesh = mesh_of(devices, "x")

    def residual(u: Any, f: Any) -> Any:
        p = jnp.pad(u, 1)
        return f - (4 * u - p[2:, 1:-1] - p[:-2, 1:-1] - p[1:-1, 2:] - p[1:-1, :-2])

    def cycle(u: Any, f: Any) -> Any:
        for _ in range(2):
            u = u + 0.2 * residual(u, f)
        if len(u) > 4:
            n = len(u) // 2
            coarse = residual(u, f).reshape(n, 2, n, 2).sum((1, 3))
            more = cycle(jnp.zeros((n, n)), coarse)
            u = u + more.repeat(2, 0).repeat(2, 1)
        return u + 0.2 * residual(u, f)

    @jax.jit
    def run(f: Any) -> Any:
        step = lambda _, u: cycle(u, f)  # noqa: E731
        u = lax.fori_loop(0, 3, step, jnp.zeros_like(f))
        return u, jnp.linalg.norm(residual(u, f))

    return Program(run, (put(mesh, normal(1, 32, 32), "x"),), mesh)


def conjugate_gradients(devices: int) -> Program:
    """jax.scipy's cg on a divided matrix, and bicgstab on another."""
    mesh = mesh_of(devices, "x", "y")

    @jax.jit
    def run(a: Any, b: Any) -> Any:
        spd = a @ a.T / 32 + jnp.eye(32)
        x, _ = jax.scipy.sparse.linalg.cg(spd, b, maxiter=20)
        y, _ = jax.scipy.sparse.linalg.bicgstab(spd + 0.1 * a, b, maxiter=4)
        return x, y

    return Program(
        run, (put(mesh, normal(1, 32, 32), "x", "y"), put(mesh, normal(2, 32), "x")), mesh
    )


def lattice_boltzmann(devices: int) -> Program:
    """Nine populations streamed by rolls in two dimensions and relaxed."""
    mesh = mesh_of(devices, "x", "y")
    steps = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)]
    weight = [4 / 9 if not i and not j else 1 / 9 if not i * j else 1 / 36 for i, j in steps]

    @jax.jit
    def run(f: Any) -> Any:
        c, w = jnp.array(steps, jnp.float32), jnp.array(weight, jnp.float32)

        def step(f: Any, _: Any) -> Any:
            f = jnp.stack([jnp.roll(f[k], s, (0, 1)) for k, s in enumerate(steps)])
            density = f.sum(0)
            u = jnp.einsum("kxy,kd->dxy", f, c) / density
            cu = jnp.einsum("kd,dxy->kxy", c, u)
            still = w[:, None, None] * density * (1 + 3 * cu + 4.5 * cu**2 - 1.5 * (u**2).sum(0))
            return constrain(mesh, f + (still - f) / 0.8, None, "x", "y"), density.std()

        return lax.scan(step, f, None, length=4)

    return Program(run, (put(mesh, uniform(1, 9, 16, 16, low=0.5), None, "x", "y"),), mesh)


def particles(devices: int) -> Program:
    """Lennard-Jones particles in a periodic box: pair forces as a gradient, velocity Verlet."""
    mesh = mesh_of(devices, "x")

    def energy(x: Any) -> Any:
        d = x[:, None] - x[None]
        d = d - 8 * jnp.round(d / 8)
        r2 = jnp.where(jnp.eye(len(x), dtype=bool), 1.0, (d**2).sum(-1))
        r6 = 1 / jnp.maximum(r2, 0.8) ** 3
        return 2 * jnp.sum(jnp.where(jnp.eye(len(x), dtype=bool), 0.0, r6 * r6 - r6))

    @jax.jit
    def run(x: Any, v: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            x, v = state
            v = v - 0.005 * jax.grad(energy)(x)
            x = jnp.mod(x + 0.01 * v, 8)
            return (x, v), energy(x)

        return lax.scan(step, (x, v), None, length=5)

    return Program(
        run, (put(mesh, uniform(1, 24, 3, high=8), "x"), put(mesh, normal(2, 24, 3), "x")), mesh
    )
