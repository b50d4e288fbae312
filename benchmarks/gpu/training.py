"""A GPT's training step on one GPU, made by JAX: ours with and without CUDA graphs, and JAX's own, in the same run.

    python -m benchmarks.gpu.training [--layers 8] [--width 2048] [--sequence 1024] [--batch 8] [--kernels] [--json F]

Weights and Adam's moments are f32, products bf16. What graphs save is what the device waits for launches without them.
--kernels times each kernel of both as well: ours by events around it, in steps without graphs, JAX's by its profiler.
--double is as of gpu_kernels.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.gpu.peers import (
    environment,
    forms,
    kernel_times,
    make_driver,
    one_by_one,
    ours,
    profiled_kernels,
    seconds_in_a_row,
    theirs,
)
from benchmarks.timing.turns import in_turns

WEIGHTS = ("embed", "qkv", "out", "up", "down", "scale")


def weights(layers: int, width: int, vocabulary: int) -> list[np.ndarray]:
    """Stacked over layers, in the order of ``WEIGHTS``."""
    rng = np.random.default_rng(0)
    shapes = [
        (vocabulary, width),
        (layers, width, 3 * width),
        (layers, width, width),
        (layers, width, 4 * width),
        (layers, 4 * width, width),
        (layers, 2, width),
    ]
    return [(0.02 * rng.standard_normal(shape)).astype(np.float32) for shape in shapes]


def norm(x: Any, scale: Any) -> Any:
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt((wide * wide).mean(-1, keepdims=True) + 1e-6) * scale).astype(
        x.dtype
    )


def block(x: Any, qkv: Any, out: Any, up: Any, down: Any, scale: Any, heads: int) -> Any:
    batch, sequence, width = x.shape
    low = jnp.bfloat16
    projected = norm(x, 1 + scale[0]) @ qkv.astype(low)
    q, k, v = jnp.split(projected.reshape(batch, sequence, heads, -1), 3, axis=-1)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32)
    mask = jnp.tril(jnp.ones((sequence, sequence), bool))
    scores = jnp.where(mask, scores / np.sqrt(width / heads), -1e30)
    attended = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores).astype(low), v)
    x = x + attended.reshape(x.shape) @ out.astype(low)
    hidden = jax.nn.gelu(norm(x, 1 + scale[1]) @ up.astype(low), approximate=True)
    return x + hidden @ down.astype(low)


def loss(parameters: Any, tokens: Any, heads: int) -> Any:
    embed, *stacked = parameters
    x = embed.astype(jnp.bfloat16)[tokens[:, :-1]]
    for layer in range(stacked[0].shape[0]):
        x = block(x, *(w[layer] for w in stacked), heads=heads)
    logits = (x @ embed.astype(jnp.bfloat16).T).astype(jnp.float32)
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:, None], axis=-1)
    return -picked.mean()


def training_step(heads: int) -> Any:
    count = len(WEIGHTS)

    def step(*arguments: Any) -> Any:
        parameters, m, v = (arguments[i * count : (i + 1) * count] for i in range(3))
        value, gradients = jax.value_and_grad(loss)(parameters, arguments[-1], heads)
        m = [0.9 * a + 0.1 * g for a, g in zip(m, gradients, strict=True)]
        v = [0.999 * a + 0.001 * g * g for a, g in zip(v, gradients, strict=True)]
        updated = [
            p - 1e-4 * a / (jnp.sqrt(b) + 1e-8) for p, a, b in zip(parameters, m, v, strict=True)
        ]
        return (*updated, *m, *v, value)

    return jax.jit(step, donate_argnums=tuple(range(3 * count)))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, size in (
        ("layers", 8),
        ("width", 2048),
        ("sequence", 1024),
        ("batch", 8),
        ("heads", 16),
    ):
        parser.add_argument(f"--{name}", type=int, default=size)
    parser.add_argument("--vocabulary", type=int, default=32768)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--kernels", action="store_true", help="the time of each kernel, too")
    parser.add_argument("--double", action="store_true", help="small sizes on a double of a GPU")
    options = parser.parse_args()
    if options.double:
        options.layers, options.width, options.sequence, options.batch = 2, 64, 16, 2
        options.heads, options.vocabulary, options.rounds = 2, 128, 1
    driver = make_driver(double=options.double)
    print(json.dumps(environment(driver)))
    parameters = weights(options.layers, options.width, options.vocabulary)
    zeros = [np.zeros_like(w) for w in parameters]
    rng = np.random.default_rng(1)
    tokens = rng.integers(0, options.vocabulary, (options.batch, options.sequence + 1)).astype(
        np.int32
    )
    arrays = [*parameters, *zeros, *zeros, tokens]
    jitted, donated = training_step(options.heads), 3 * len(WEIGHTS)
    with_graphs, executable = ours(jitted, arrays, donated, driver)
    # Compiled and planned once: the same plan with its graphs switched off.
    works = {"graphs": with_graphs, "one by one": one_by_one(executable, with_graphs)}
    if (peer := theirs(jitted, arrays, donated)) is not None:
        works["jax"] = peer
    for work in works.values():
        for _ in range(3):
            work()
    found = in_turns(works, options.rounds)
    figures = {name: 1e3 * statistics.median(seconds) for name, seconds in found.items()}
    kernels = forms(executable)
    figures["graphs in a row"] = 1e3 * seconds_in_a_row(executable, options.rounds)
    if peer is not None:
        figures["jax in a row"] = 1e3 * peer.seconds_in_a_row(options.rounds)
    for name, milliseconds in figures.items():
        print(f"{name:16s} {milliseconds:9.2f} ms a step")
    print(
        f"kernels: {kernels['ptx']} PTX, {kernels['library']} libraries, hosted: {kernels['hosted']}"
    )
    times: dict[str, list[tuple[str, int, float]]] = {}
    if options.kernels:
        times["ours"] = kernel_times(executable, arrays, donated)
        if peer is not None:
            times["jax"] = profiled_kernels(peer)
        for name, rows in times.items():
            print(f"{name}: {sum(row[2] for row in rows):.2f} ms in kernels; those that take most:")
            for kernel, count, milliseconds in rows[:20]:
                print(f"  {milliseconds:8.3f} ms {count:4d} x {kernel}")
    if options.json:
        sizes = {k: v for k, v in vars(options).items() if isinstance(v, int)}
        record = {
            "environment": environment(driver),
            "sizes": sizes,
            "ms": figures,
            "kernels": kernels,
            "kernel_ms": times,
            "thunks": executable.dump_thunks().splitlines() if options.kernels else [],
        }
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
