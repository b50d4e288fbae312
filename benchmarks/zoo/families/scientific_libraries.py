"""Programs of libraries for science on JAX: solvers, samplers, flows, Gaussian processes, equivariant layers."""

from __future__ import annotations

from typing import Any

import diffrax
import distrax
import e3nn_jax as e3nn
import equinox as eqx
import jax
import jax.numpy as jnp
import lineax
import numpy as np
import numpyro
import numpyro.distributions as dist
import optimistix
import tinygp
from blackjax import hmc as blackjax_hmc
from dynamax.linear_gaussian_ssm import LinearGaussianSSM, lgssm_smoother
from flowjax.distributions import Normal
from flowjax.flows import coupling_flow
from numpyro.infer.hmc import hmc as numpyro_hmc
from numpyro.infer.util import log_density

from benchmarks.zoo.program import Program, integers, mesh_of, normal, put, scaled, uniform


def keys(seed: int, *shape: int) -> np.ndarray:
    return integers(seed, 1 << 30, *shape, 2).astype("uint32")


def diffrax_ensemble(devices: int) -> Program:
    """Adaptive Runge-Kutta steps of many initial values; those that are done wait for the others."""
    mesh = mesh_of(devices, "ensemble")

    @jax.jit
    @jax.vmap
    def run(y: Any, rates: Any) -> Any:
        term = diffrax.ODETerm(lambda t, y, rates: -rates * y + jnp.sin(t))
        return diffrax.diffeqsolve(
            term,
            diffrax.Tsit5(),
            0.0,
            3.0,
            0.1,
            y,
            args=rates,
            saveat=diffrax.SaveAt(ts=jnp.linspace(0.0, 3.0, 7)),
            stepsize_controller=diffrax.PIDController(rtol=1e-4, atol=1e-6),
            max_steps=256,
        ).ys

    rates = put(mesh, uniform(2, 16, 3, low=0.5, high=1.5), "ensemble")
    return Program(run, (put(mesh, normal(1, 16, 3), "ensemble"), rates), mesh)


def diffrax_stiff(devices: int) -> Program:
    """Implicit steps, each with a root finder, of a chemical reaction (Robertson's, slowed down)."""
    mesh = mesh_of(devices, "ensemble")

    def field(_: Any, y: Any, k: Any) -> Any:
        a = k[0] * y[0]
        b, c = k[1] * y[1] * y[2], k[2] * y[1] ** 2
        return jnp.stack([b - a, a - b - c, c])

    @jax.jit
    @jax.vmap
    def run(y: Any, k: Any) -> Any:
        return diffrax.diffeqsolve(
            diffrax.ODETerm(field),
            diffrax.Kvaerno3(),
            0.0,
            1.0,
            0.01,
            y,
            args=k,
            stepsize_controller=diffrax.PIDController(rtol=1e-3, atol=1e-5),
            max_steps=64,
            throw=False,
        ).ys

    first = np.tile(np.float32([1, 0, 0]), (8, 1))
    k = np.float32([0.04, 100, 30]) * uniform(3, 8, 3, low=0.8, high=1.2)
    return Program(run, (put(mesh, first, "ensemble"), put(mesh, k, "ensemble")), mesh)


def diffrax_sde(devices: int) -> Program:
    """Euler steps along Brownian paths that a tree of random numbers gives."""
    mesh = mesh_of(devices, "path")

    @jax.jit
    @jax.vmap
    def run(y: Any, key: Any) -> Any:
        path = diffrax.VirtualBrownianTree(
            0, 1, tol=1e-2, shape=(2,), key=jax.random.wrap_key_data(key)
        )
        drift = diffrax.ODETerm(lambda t, y, _: -y)
        noise = diffrax.ControlTerm(lambda t, y, _: 0.3 * jnp.eye(2), path)
        terms = diffrax.MultiTerm(drift, noise)
        return diffrax.diffeqsolve(terms, diffrax.Euler(), 0, 1, 0.1, y, max_steps=32).ys

    return Program(run, (put(mesh, normal(1, 16, 2), "path"), put(mesh, keys(2, 16), "path")), mesh)


def numpyro_logistic(devices: int) -> Program:
    """Log density of a hierarchical model and its gradient; observations divided."""
    mesh = mesh_of(devices, "data")

    def model(x: Any, y: Any) -> None:
        scale = numpyro.sample("scale", dist.Gamma(2.0, 1.0))
        w = numpyro.sample("w", dist.Normal(0, scale).expand([5]).to_event(1))
        b = numpyro.sample("b", dist.StudentT(3.0))
        with numpyro.plate("n", x.shape[0]):
            numpyro.sample("y", dist.BernoulliLogits(x @ w + b), obs=y)

    @jax.jit
    @jax.value_and_grad
    def run(p: Any, x: Any, y: Any) -> Any:
        return log_density(model, (x, y), {}, p)[0]

    p = {"scale": np.float32(1.3), "w": normal(1, 5, scale=0.3), "b": np.float32(0.2)}
    batch = put(mesh, normal(2, 64, 5), "data"), put(mesh, integers(3, 2, 64), "data")
    return Program(run, (jax.tree.map(lambda x: put(mesh, x), p), *batch), mesh)


def numpyro_nuts(devices: int) -> Program:
    """Trees of the no-U-turn sampler for eight schools, a chain for each key."""
    mesh = mesh_of(devices, "chain")
    effects = np.float32([28, 8, -3, 7, -1, 1, 18, 12])
    errors = np.float32([15, 10, 16, 11, 9, 11, 10, 18])

    def potential(z: Any) -> Any:
        prior = 0.02 * z["mu"] ** 2 + 0.5 * z["log_tau"] ** 2 + 0.5 * (z["theta"] ** 2).sum()
        mean = z["mu"] + jnp.exp(z["log_tau"]) * z["theta"]
        return prior + 0.5 * (((effects - mean) / errors) ** 2).sum()

    begin, sample = numpyro_hmc(potential, algo="NUTS")

    @jax.jit
    @jax.vmap
    def run(z: Any, key: Any) -> Any:
        state = begin(
            z,
            num_warmup=0,
            step_size=0.2,
            adapt_step_size=False,
            adapt_mass_matrix=False,
            max_tree_depth=3,
            rng_key=jax.random.wrap_key_data(key),
        )
        state = sample(state)
        return state.z, state.potential_energy, state.num_steps

    z = {"mu": normal(1, 8), "log_tau": normal(2, 8), "theta": normal(3, 8, 8)}
    placed = jax.tree.map(lambda x: put(mesh, x, "chain"), z)
    return Program(run, (placed, put(mesh, keys(4, 8), "chain")), mesh)


def blackjax_chains(devices: int) -> Program:
    """Hamiltonian Monte Carlo, a chain for each key."""
    mesh = mesh_of(devices, "chain")

    def log_density_of(x: Any) -> Any:
        return -0.5 * (x**2).sum() - jnp.logaddexp(x, -x).sum()

    @jax.jit
    @jax.vmap
    def run(x: Any, key: Any) -> Any:
        sampler = blackjax_hmc(
            log_density_of,
            step_size=0.1,
            inverse_mass_matrix=jnp.ones(4),
            num_integration_steps=8,
        )

        def step(state: Any, key: Any) -> Any:
            state, info = sampler.step(key, state)
            return state, (state.position, info.acceptance_rate)

        split = jax.random.split(jax.random.wrap_key_data(key), 5)
        return jax.lax.scan(step, sampler.init(x), split)[1]

    return Program(
        run, (put(mesh, normal(1, 16, 4), "chain"), put(mesh, keys(2, 16), "chain")), mesh
    )


def lineax_solves(devices: int) -> Program:
    """Least squares by QR, GMRES and conjugate gradients, a system for each index."""
    mesh = mesh_of(devices, "system")

    @jax.jit
    @jax.vmap
    def run(a: Any, b: Any) -> Any:
        square = a.T @ a + jnp.eye(6)
        definite = lineax.MatrixLinearOperator(square, lineax.positive_semidefinite_tag)
        general = lineax.MatrixLinearOperator(square + 0.1 * a[:6])
        tall = lineax.MatrixLinearOperator(a)
        iterative = {"rtol": 1e-5, "atol": 1e-6}
        return (
            lineax.linear_solve(tall, b, lineax.QR()).value,
            lineax.linear_solve(general, b[:6], lineax.GMRES(**iterative), throw=False).value,
            lineax.linear_solve(definite, b[:6], lineax.CG(**iterative), throw=False).value,
        )

    return Program(
        run, (put(mesh, normal(1, 8, 10, 6), "system"), put(mesh, normal(2, 8, 10), "system")), mesh
    )


def optimistix_fits(devices: int) -> Program:
    """Levenberg-Marquardt fits of curves, and Newton's method for their roots."""
    mesh = mesh_of(devices, "curve")
    at = np.linspace(0, 1, 20, dtype=np.float32)

    def residuals(p: Any, y: Any) -> Any:
        return p[0] * jnp.exp(-p[1] * at) - y

    @jax.jit
    @jax.vmap
    def run(p: Any, y: Any) -> Any:
        fit = optimistix.LevenbergMarquardt(rtol=1e-4, atol=1e-5)
        found = optimistix.least_squares(residuals, fit, p, args=y, max_steps=12, throw=False)
        newton = optimistix.Newton(rtol=1e-5, atol=1e-5)
        cubic = lambda x, a: x**3 + x - a  # noqa: E731
        root = optimistix.root_find(cubic, newton, p[0], args=y[0], max_steps=12, throw=False)
        return found.value, root.value

    true = uniform(1, 8, 2, low=1.0, high=2.0)
    y = (true[:, :1] * np.exp(-true[:, 1:] * at)).astype(np.float32)
    return Program(
        run, (put(mesh, np.ones((8, 2), np.float32), "curve"), put(mesh, y, "curve")), mesh
    )


def distrax_spline(devices: int) -> Program:
    """Rational quadratic splines there and back, with their volumes, and what they make of a density."""
    mesh = mesh_of(devices, "sample")

    @jax.jit
    def run(x: Any, parameters: Any) -> Any:
        spline = distrax.RationalQuadraticSpline(parameters, range_min=-3.0, range_max=3.0)
        y, volume = spline.forward_and_log_det(x)
        back, inverse = spline.inverse_and_log_det(y)
        flow = distrax.Transformed(distrax.Normal(jnp.zeros(x.shape), jnp.ones(x.shape)), spline)
        return y, volume, back, inverse, flow.log_prob(y)

    return Program(
        run, (put(mesh, normal(1, 16), "sample"), put(mesh, normal(2, 16, 13), "sample")), mesh
    )


def flowjax_coupling(devices: int) -> Program:
    """Loss of a coupling flow and its gradient."""
    mesh = mesh_of(devices, "data")
    flow = coupling_flow(
        jax.random.key(0), base_dist=Normal(jnp.zeros(4)), nn_width=8, flow_layers=2
    )
    parameters, static = eqx.partition(flow, eqx.is_inexact_array)

    @jax.jit
    @jax.value_and_grad
    def run(parameters: Any, x: Any) -> Any:
        return -eqx.combine(parameters, static).log_prob(x).mean()

    placed = jax.tree.map(lambda x: put(mesh, np.asarray(x)), parameters)
    return Program(run, (placed, put(mesh, normal(1, 16, 4), "data")), mesh)


def tinygp_likelihood(devices: int) -> Program:
    """Likelihood of a Gaussian process and its gradient: by a dense factor, and by a quasi-separable one."""
    mesh = mesh_of(devices, "x")

    @jax.jit
    @jax.value_and_grad
    def run(p: Any, x: Any, y: Any) -> Any:
        dense = jnp.exp(p[0]) * tinygp.kernels.Matern52(jnp.exp(p[1]))
        fast = tinygp.kernels.quasisep.Matern32(jnp.exp(p[2]))
        processes = [tinygp.GaussianProcess(kernel, x, diag=0.1) for kernel in (dense, fast)]
        return sum(process.log_probability(y) for process in processes)

    x = np.sort(uniform(1, 24))
    arguments = put(mesh, normal(3, 3, scale=0.3)), put(mesh, x, "x"), put(mesh, normal(2, 24), "x")
    return Program(run, arguments, mesh)


def dynamax_smoother(devices: int) -> Program:
    """Kalman smoother of a linear state space model, a series for each index."""
    mesh = mesh_of(devices, "series")
    parameters, _ = LinearGaussianSSM(3, 2).initialize(jax.random.PRNGKey(0))

    @jax.jit
    def run(y: Any) -> Any:
        def smoothed(y: Any) -> Any:
            found = lgssm_smoother(parameters, y)
            return found.marginal_loglik, found.smoothed_means

        return jax.vmap(smoothed)(y)

    return Program(run, (put(mesh, normal(1, 8, 20, 2), "series"),), mesh)


def e3nn_tensor_product(devices: int) -> Program:
    """Tensor product with spherical harmonics, a mixing of its parts, and the gradient by the positions."""
    mesh = mesh_of(devices, "edge")

    def energy(position: Any, features: Any, weights: Any) -> Any:
        irreps = e3nn.IrrepsArray("2x0e + 1x1o", features)
        harmonics = e3nn.spherical_harmonics("0e + 1o + 2e", position, normalize=True)
        product = e3nn.tensor_product(irreps, harmonics)
        return jnp.tanh(product.array @ weights).sum()

    inputs = e3nn.tensor_product(
        e3nn.IrrepsArray("2x0e + 1x1o", jnp.zeros(5)),
        e3nn.spherical_harmonics("0e + 1o + 2e", jnp.ones(3), normalize=True),
    ).array.shape[-1]
    arguments = (
        put(mesh, normal(1, 16, 3), "edge"),
        put(mesh, normal(2, 16, 5), "edge"),
        put(mesh, scaled(3, inputs, 8)),
    )
    return Program(jax.jit(jax.value_and_grad(energy)), arguments, mesh)
