"""Programs of libraries for optimal transport, tree search, games, bodies in contact, poses and fluids."""

from __future__ import annotations

from typing import Any

import exponax
import jax
import jax.numpy as jnp
import jaxlie
import mctx
import mujoco
import numpy as np
import pgx
from brax import envs
from jax import lax
from mujoco import mjx
from ott.geometry.pointcloud import PointCloud
from ott.problems.linear.linear_problem import LinearProblem
from ott.solvers.linear.sinkhorn import Sinkhorn

from benchmarks.zoo.program import Program, integers, mesh_of, normal, put, scaled, uniform

#: A double pendulum with motors beside a ball that falls on the floor.
BODIES = """
<mujoco><option timestep="0.01" iterations="3" ls_iterations="4"/><worldbody>
<geom type="plane" size="5 5 .1"/>
<body pos="0 0 1"><joint name="a" type="hinge" axis="0 1 0" damping=".1"/>
<geom type="capsule" fromto="0 0 0 .4 0 0" size=".05"/>
<body pos=".4 0 0"><joint name="b" type="hinge" axis="0 1 0" damping=".1"/>
<geom type="capsule" fromto="0 0 0 .4 0 0" size=".04"/></body></body>
<body pos="1 0 .3"><freejoint/><geom type="sphere" size=".1"/></body>
</worldbody><actuator><motor joint="a"/><motor joint="b"/></actuator></mujoco>
"""


def keys(seed: int, *shape: int) -> np.ndarray:
    return integers(seed, 1 << 30, *shape, 2).astype("uint32")


def ott_sinkhorn(devices: int) -> Program:
    """Transport between clouds of points, by Sinkhorn's iterations until they converge, and its gradient."""
    mesh = mesh_of(devices, "points")

    def cost(x: Any, y: Any) -> Any:
        problem = LinearProblem(PointCloud(x, y, epsilon=0.1))
        found = Sinkhorn(max_iterations=100, threshold=1e-3)(problem)
        return found.reg_ot_cost, (found.f, found.g, found.converged)

    arguments = put(mesh, normal(1, 64, 3), "points"), put(mesh, normal(2, 48, 3) + 0.5)
    return Program(jax.jit(jax.value_and_grad(cost, (0, 1), has_aux=True)), arguments, mesh)


def mctx_muzero(devices: int) -> Program:
    """Tree search with a learned model, of a batch of divided roots."""
    mesh = mesh_of(devices, "root")
    actions, features = 6, 16

    def recurrent(p: Any, _: Any, action: Any, state: Any) -> Any:
        state = jnp.tanh(state @ p["next"] + p["action"][action])
        output = mctx.RecurrentFnOutput(
            reward=state @ p["reward"],
            discount=jnp.full(action.shape, 0.97),
            prior_logits=state @ p["policy"],
            value=state @ p["value"],
        )
        return output, state

    @jax.jit
    def run(p: Any, state: Any, key: Any) -> Any:
        root = mctx.RootFnOutput(
            prior_logits=state @ p["policy"], value=state @ p["value"], embedding=state
        )
        key = jax.random.wrap_key_data(key)
        found = mctx.muzero_policy(p, key, root, recurrent, num_simulations=16)
        tree = found.search_tree
        return found.action, found.action_weights, tree.node_values, tree.children_visits

    parameters = {
        "next": scaled(1, features, features),
        "action": normal(2, actions, features, scale=0.5),
        "reward": scaled(3, features, 1)[:, 0],
        "policy": scaled(4, features, actions),
        "value": scaled(5, features, 1)[:, 0],
    }
    placed = jax.tree.map(lambda x: put(mesh, x), parameters)
    state = put(mesh, normal(6, 16, features), "root")
    return Program(run, (placed, state, put(mesh, keys(7))), mesh)


def pgx_2048(devices: int) -> Program:
    """Random legal moves in divided games of 2048."""
    mesh = mesh_of(devices, "game")
    game = pgx.make("2048")

    @jax.jit
    @jax.vmap
    def run(key: Any) -> Any:
        def move(state: Any, key: Any) -> Any:
            choice, tile = jax.random.split(key)
            legal = jnp.where(state.legal_action_mask, 0.0, -jnp.inf)
            action = jax.random.categorical(choice, legal)
            state = game.step(state, action, tile)
            return state, (action, state.rewards, state.terminated)

        first, moves = jax.random.split(jax.random.wrap_key_data(key))
        state, trace = lax.scan(move, game.init(first), jax.random.split(moves, 6))
        return state.observation, trace

    return Program(run, (put(mesh, keys(1, 16), "game"),), mesh)


def mjx_bodies(devices: int) -> Program:
    """Steps of bodies with joints and contacts, many worlds divided."""
    mesh = mesh_of(devices, "world")
    described = mujoco.MjModel.from_xml_string(BODIES)
    model = mjx.put_model(described)
    start = mjx.make_data(model)

    @jax.jit
    @jax.vmap
    def run(positions: Any, velocities: Any, control: Any) -> Any:
        def step(data: Any, _: Any) -> Any:
            data = mjx.step(model, data)
            return data, data.qpos[:3]

        data = start.replace(qpos=positions, qvel=velocities, ctrl=control)
        data, trace = lax.scan(step, data, None, length=5)
        return data.qpos, data.qvel, data.xpos, trace

    positions = np.asarray(described.qpos0, np.float32) + normal(1, 16, described.nq, scale=0.01)
    arrays = positions, normal(2, 16, described.nv, scale=0.1), normal(3, 16, described.nu)
    return Program(run, tuple(put(mesh, x, "world") for x in arrays), mesh)


def brax_pendulum(devices: int) -> Program:
    """Rollouts of brax's generalized coordinates: a loop over time, with loops that start in its state."""
    return _rollout(devices, "inverted_pendulum", "generalized")


def brax_ant(devices: int) -> Program:
    """Rollouts of brax's springs: quaternions, joints and contacts of a body with many links."""
    return _rollout(devices, "ant", "spring")


def _rollout(devices: int, name: str, backend: str) -> Program:
    mesh = mesh_of(devices, "world")
    environment = envs.get_environment(name, backend=backend)

    @jax.jit
    def run(state: Any, actions: Any) -> Any:
        def step(state: Any, action: Any) -> Any:
            state = jax.vmap(environment.step)(state, action)
            return state, (state.obs, state.reward)

        state, trace = lax.scan(step, state, actions)
        return state.pipeline_state.q, state.pipeline_state.qd, trace

    state = jax.jit(jax.vmap(environment.reset))(jax.random.split(jax.random.key(0), 16))
    placed = jax.tree.map(lambda x: put(mesh, np.asarray(x), "world"), state)
    actions = np.tanh(normal(1, 4, 16, environment.action_size))
    return Program(run, (placed, put(mesh, actions, None, "world")), mesh)


def jaxlie_poses(devices: int) -> Program:
    """Errors of rigid transformations and their gradients, a pose for each index."""
    mesh = mesh_of(devices, "pose")

    @jax.jit
    @jax.vmap
    @jax.value_and_grad
    def run(twist: Any, point: Any, target: Any) -> Any:
        pose = jaxlie.SE3.exp(twist)
        drift = (pose.inverse() @ jaxlie.SE3.exp(0.9 * twist)).log()
        return jnp.sum((pose @ point - target) ** 2) + jnp.sum(drift**2) + pose.adjoint().sum()

    arrays = normal(1, 16, 6), normal(2, 16, 3), uniform(3, 16, 3)
    return Program(run, tuple(put(mesh, x, "pose") for x in arrays), mesh)


def exponax_kolmogorov(devices: int) -> Program:
    """A driven flow in two dimensions, by exponential steps of its Fourier transform; a flow for each index."""
    mesh = mesh_of(devices, "flow")
    stepper = exponax.stepper.KolmogorovFlowVorticity(2, 2 * np.pi, 32, 0.02, diffusivity=0.01)
    run = jax.jit(jax.vmap(exponax.rollout(stepper, 5)))
    return Program(run, (put(mesh, normal(1, 8, 1, 32, 32), "flow"),), mesh)
