"""Reinforcement learning: environments by vmap, a policy gradient, clipped objectives, value iteration."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import lax

from benchmarks.zoo.program import (
    Program,
    integers,
    mesh_of,
    normal,
    put,
    scaled,
    shard_tree,
    training_step,
    uniform,
)


def cart_pole(devices: int) -> Program:
    """Roll out a policy in many divided environments, and its policy gradient."""
    mesh = mesh_of(devices, "env")

    def physics(state: Any, force: Any) -> Any:
        x, v, angle, spin = state
        temporary = (force + 0.05 * spin**2 * jnp.sin(angle)) / 1.1
        turn = (9.8 * jnp.sin(angle) - jnp.cos(angle) * temporary) / 0.65
        return jnp.stack(
            [x + 0.02 * v, v + 0.02 * temporary, angle + 0.02 * spin, spin + 0.02 * turn]
        )

    def roll_out(w: Any, state: Any, key: Any) -> Any:
        def step(carry: Any, key: Any) -> Any:
            state, alive = carry
            logit = jnp.tanh(state @ w[0]) @ w[1]
            action = jax.random.bernoulli(key, jax.nn.sigmoid(logit))
            chance = jax.nn.log_sigmoid(jnp.where(action, logit, -logit))
            state = physics(state, jnp.where(action, 10.0, -10.0))
            alive = alive & (jnp.abs(state[2]) < 0.2)
            return (state, alive), (chance, alive)

        keys = jax.random.split(jax.random.wrap_key_data(key), 20)
        (state, _), (chances, alive) = lax.scan(step, (state, jnp.bool_(True)), keys)
        return jnp.sum(chances) * lax.stop_gradient(jnp.sum(alive)), (state, alive.sum())

    @jax.jit
    def run(w: Any, states: Any, keys: Any) -> Any:
        def objective(w: Any) -> Any:
            values, rest = jax.vmap(roll_out, (None, 0, 0))(w, states, keys)
            return values.mean(), rest

        return jax.value_and_grad(objective, has_aux=True)(w)

    keys = integers(4, 1 << 30, 32, 2).astype("uint32")
    weights = shard_tree((scaled(1, 4, 8), scaled(2, 8)), mesh, None)
    return Program(
        run, (weights, put(mesh, normal(3, 32, 4, scale=0.05), "env"), put(mesh, keys, "env")), mesh
    )


def ppo_update(devices: int) -> Program:
    """Generalized advantages by a reversed scan, shuffled minibatches in a scan, a clipped objective."""
    mesh = mesh_of(devices, "env")
    weights = {"in": scaled(1, 8, 16), "policy": scaled(2, 16, 4), "value": scaled(3, 16, 1)}

    def loss(w: Any, seen: Any, action: Any, old: Any, reward: Any) -> Any:
        h = jnp.tanh(seen @ w["in"])
        value = (h @ w["value"])[..., 0]

        def back(advantage: Any, inputs: Any) -> Any:
            r, v, following = inputs
            advantage = r + 0.99 * following - v + 0.95 * 0.99 * advantage
            return advantage, advantage

        fixed = lax.stop_gradient(value)
        following = jnp.concatenate([fixed[1:], jnp.zeros_like(fixed[:1])])
        _, advantage = lax.scan(
            back, jnp.zeros_like(fixed[0]), (reward, fixed, following), reverse=True
        )
        chance = jnp.take_along_axis(jax.nn.log_softmax(h @ w["policy"]), action[..., None], -1)[
            ..., 0
        ]
        ratio = jnp.exp(chance - old)
        scaled_advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-5)
        clipped = jnp.clip(ratio, 0.8, 1.2) * scaled_advantage
        gain = jnp.minimum(ratio * scaled_advantage, clipped)
        return -gain.mean() + 0.5 * jnp.mean((value - fixed - advantage) ** 2)

    batch = (
        put(mesh, normal(4, 16, 8, 8), None, "env"),
        put(mesh, integers(5, 4, 16, 8), None, "env"),
        put(mesh, -1.4 + normal(6, 16, 8, scale=0.1), None, "env"),
        put(mesh, uniform(7, 16, 8), None, "env"),
    )
    return training_step(loss, weights, batch, mesh, optax.adam(1e-3), axis=None)


def value_iteration(devices: int) -> Program:
    mesh = mesh_of(devices, "states")

    @jax.jit
    def run(rewards: Any, logits: Any) -> Any:
        transitions = jax.nn.softmax(logits, -1)

        def improve(state: Any) -> Any:
            values, _ = state
            q = rewards + 0.9 * jnp.einsum("sat,t->sa", transitions, values)
            return q.max(1), jnp.abs(q.max(1) - values).max()

        values, _ = lax.while_loop(lambda s: s[1] > 1e-3, improve, (jnp.zeros(32), jnp.float32(1)))
        q = rewards + 0.9 * jnp.einsum("sat,t->sa", transitions, values)
        return values, q.argmax(1)

    return Program(
        run,
        (put(mesh, uniform(1, 32, 4), "states"), put(mesh, normal(2, 32, 4, 32), "states")),
        mesh,
    )


def replay_buffer(devices: int) -> Program:
    """A ring buffer that is written by dynamic slices, sampled by priority, and donated."""
    mesh = mesh_of(devices, "x")

    def step(buffer: Any, priorities: Any, new: Any, where: Any) -> Any:
        buffer = lax.dynamic_update_slice(buffer, new, (where, 0))
        priorities = lax.dynamic_update_slice(priorities, jnp.ones(len(new)), (where,))
        noise = jax.random.gumbel(jax.random.key(3), priorities.shape)
        _, chosen = lax.top_k(jnp.log(priorities) + noise, 8)
        return buffer, priorities.at[chosen].multiply(0.5), buffer[chosen], chosen

    run = jax.jit(step, donate_argnums=(0, 1))
    arguments = (
        put(mesh, normal(1, 64, 6), "x"),
        put(mesh, uniform(2, 64, low=0.1), "x"),
        put(mesh, normal(3, 8, 6), "x"),
        put(mesh, jnp.int32(13)),
    )
    return Program(run, arguments, mesh)
