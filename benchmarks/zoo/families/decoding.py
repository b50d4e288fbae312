"""Decoding: beam search, sampling, key-value caches, speculation, in loops that end by data."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.zoo.program import (
    Program,
    integers,
    mesh_of,
    normal,
    put,
    scaled,
    shard_tree,
)

VOCABULARY, WIDTH, LENGTH = 24, 16, 12


def language_model() -> dict[str, Any]:
    return {
        "embed": normal(1, VOCABULARY, WIDTH),
        "q": scaled(2, WIDTH, WIDTH),
        "k": scaled(3, WIDTH, WIDTH),
        "v": scaled(4, WIDTH, WIDTH),
        "out": 3 * scaled(5, WIDTH, VOCABULARY),
    }


def decode_one(w: Any, cache: Any, token: Any, where: Any) -> Any:
    """Logits of the next token of each sequence, and the cache with this token's key and value."""
    x = w["embed"][token]
    keys = lax.dynamic_update_slice_in_dim(cache[0], (x @ w["k"])[:, None], where, 1)
    values = lax.dynamic_update_slice_in_dim(cache[1], (x @ w["v"])[:, None], where, 1)
    scores = jnp.einsum("bd,btd->bt", x @ w["q"], keys) / 4
    scores = jnp.where(jnp.arange(LENGTH) <= where, scores, -1e9)
    return (x + jnp.einsum("bt,btd->bd", jax.nn.softmax(scores), values)) @ w["out"], (keys, values)


def empty_cache(batch: int) -> Any:
    return jnp.zeros((batch, LENGTH, WIDTH)), jnp.zeros((batch, LENGTH, WIDTH))


def greedy_until_end(devices: int) -> Program:
    """Decode until every sequence has ended; the number of steps depends on data."""
    mesh = mesh_of(devices, "data", "model")

    @jax.jit
    def run(w: Any, token: Any) -> Any:
        def step(state: Any) -> Any:
            k, token, cache, done, text = state
            logits, cache = decode_one(w, cache, token, k)
            token = jnp.where(done, 0, logits.argmax(-1))
            return k + 1, token, cache, done | (token < 3), text.at[:, k].set(token)

        batch = len(token)
        start = (
            0,
            token,
            empty_cache(batch),
            jnp.zeros(batch, bool),
            jnp.zeros((batch, LENGTH), jnp.int32),
        )
        going = lambda s: (s[0] < LENGTH) & ~s[3].all()  # noqa: E731
        count, _, _, done, text = lax.while_loop(going, step, start)
        return count, done, text

    weights = shard_tree(language_model(), mesh, "model")
    return Program(run, (weights, put(mesh, integers(7, VOCABULARY, 8), "data")), mesh)


def beam_search(devices: int) -> Program:
    mesh = mesh_of(devices, "data")
    beams = 3

    def one(w: Any, token: Any) -> Any:
        def step(state: Any, k: Any) -> Any:
            tokens, scores, cache, text = state
            logits, cache = decode_one(w, cache, tokens, k)
            total = scores[:, None] + jax.nn.log_softmax(logits)
            scores, flat = lax.top_k(total.reshape(-1), beams)
            parent, tokens = flat // VOCABULARY, flat % VOCABULARY
            cache = jax.tree.map(lambda c: c[parent], cache)
            return (tokens, scores, cache, text[parent].at[:, k].set(tokens)), parent

        text = jnp.zeros((beams, LENGTH), jnp.int32)
        scores = jnp.array([0.0, -1e9, -1e9])
        start = (jnp.full(beams, token), scores, empty_cache(beams), text)
        (_, scores, _, text), parents = lax.scan(step, start, jnp.arange(LENGTH))
        return scores, text, parents

    run = jax.jit(jax.vmap(one, (None, 0)))
    return Program(run, (language_model(), put(mesh, integers(7, VOCABULARY, 8), "data")), mesh)


def nucleus_sampling(devices: int) -> Program:
    """Temperature, top-k and top-p by sorting and cumulative sums, then categorical draws."""
    mesh = mesh_of(devices, "data")

    @jax.jit
    def run(logits: Any, seed: Any) -> Any:
        key = jax.random.key(seed)

        def step(key: Any, logits: Any) -> Any:
            key, sub = jax.random.split(key)
            order = jnp.argsort(-logits, -1)
            ranked = jnp.take_along_axis(logits / 0.7, order, -1)
            total = jnp.cumsum(jax.nn.softmax(ranked), -1)
            ranked = jnp.where(
                (total - jax.nn.softmax(ranked) < 0.9) & (jnp.arange(32) < 16), ranked, -jnp.inf
            )
            drawn = jax.random.categorical(sub, ranked)
            return key, jnp.take_along_axis(order, drawn[:, None], -1)[:, 0]

        return lax.scan(step, key, logits)[1]

    return Program(run, (put(mesh, 2 * normal(1, 6, 8, 32), None, "data"), jnp.uint32(5)), mesh)


def cache_step_donated(devices: int) -> Program:
    """One step with a donated cache that is divided by heads; positions differ by sequence."""
    mesh = mesh_of(devices, "data", "model")

    def step(cache: Any, q: Any, k: Any, v: Any, where: Any) -> Any:
        rows = jnp.arange(len(q))
        keys, values = cache[0].at[rows, where].set(k), cache[1].at[rows, where].set(v)
        scores = jnp.einsum("bhd,bthd->bht", q, keys) / 4
        mask = jnp.arange(keys.shape[1]) <= where[:, None]
        p = jax.nn.softmax(jnp.where(mask[:, None], scores, -jnp.inf))
        return (keys, values), jnp.einsum("bht,bthd->bhd", p, values), where + 1

    run = jax.jit(step, donate_argnums=0)
    cache = tuple(put(mesh, normal(k, 8, 32, 4, 16), "data", None, "model") for k in (1, 2))
    one = [put(mesh, normal(k, 8, 4, 16), "data", "model") for k in (3, 4, 5)]
    return Program(run, (cache, *one, put(mesh, integers(6, 32, 8), "data")), mesh)


def speculative_decoding(devices: int) -> Program:
    """Draft four tokens, accept a prefix by comparing probabilities, repeat while there is room."""
    mesh = mesh_of(devices, "data")

    def one(draft: Any, target: Any, token: Any, key: Any) -> Any:
        def round_of(state: Any) -> Any:
            count, token, key, text = state
            key, sub = jax.random.split(key)

            def guess(token: Any, key: Any) -> Any:
                new = jax.random.categorical(key, draft[token])
                p = jax.nn.softmax(target[token])[new]
                return new, (new, p / jax.nn.softmax(draft[token])[new])

            _, (guesses, ratio) = lax.scan(guess, token, jax.random.split(sub, 4))
            accepted = jnp.cumprod(jax.random.uniform(sub, (4,)) < ratio).sum()
            fallback = target[token].argmax()
            place = count + jnp.arange(4)
            text = text.at[place].set(
                jnp.where(jnp.arange(4) < accepted, guesses, fallback), mode="drop"
            )
            token = jnp.where(accepted > 0, guesses[jnp.maximum(accepted, 1) - 1], fallback)
            return count + jnp.maximum(accepted, 1), token, key, text

        start = (0, token, jax.random.wrap_key_data(key), jnp.full(16, -1))
        return lax.while_loop(lambda s: s[0] < 16, round_of, start)[::3]

    run = jax.jit(jax.vmap(one, (None, None, 0, 0)))
    keys = integers(4, 1 << 30, 8, 2).astype("uint32")
    arguments = (
        normal(1, 16, 16),
        normal(2, 16, 16),
        put(mesh, integers(3, 16, 8), "data"),
        put(mesh, keys, "data"),
    )
    return Program(run, arguments, mesh)
