"""Functions of JAX with Python inside: callbacks, custom_partitioning, and a user's own FFI call."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.paths import ROOT

pytest.importorskip("jax", reason="needs the jax extra")

#: Runs in a process of its own, since JAX counts its devices once.
SCRIPT = """
import os
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
import jax, jax.numpy as jnp, numpy as np
from jax.experimental import io_callback
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding, PartitionSpec as P
import spmd
from launch.options import CompileOptions
from launch.pipeline import compile_module

mesh = jax.make_mesh((4,), ("x",))
x = np.arange(32, dtype=np.float32).reshape(8, 4)
a = jax.device_put(x, NamedSharding(mesh, P("x")))
seen = []

def runs(f):
    module = spmd.from_jax(f, a)
    return compile_module(module, 4, CompileOptions()).run(x)[0], spmd.evaluate(module, x)[0]

def keep(v):
    seen.append(float(v.sum()))
    return np.float32(len(seen))

for ordered in (False, True):
    @jax.jit
    def counting(a):
        def body(i, c):
            return c + io_callback(keep, jax.ShapeDtypeStruct((), np.float32), c, ordered=ordered)
        return jax.lax.fori_loop(0, 3, body, a)
    want = np.asarray(counting(a)); jax.effects_barrier(); first = list(seen); seen.clear()
    module = spmd.from_jax(counting, a)
    got = compile_module(module, 4, CompileOptions()).run(x)[0]
    assert np.array_equal(got, want) and seen == first, (got, want, seen, first)
    seen.clear()

@jax.jit
@jax.shard_map(mesh=mesh, in_specs=P("x"), out_specs=P("x"))
def tiles(a):
    jax.debug.callback(lambda v: seen.append(v.shape), a)
    return jax.pure_callback(lambda v: v * 2, jax.ShapeDtypeStruct(a.shape, a.dtype), a)
for got in runs(tiles):
    assert np.array_equal(got, 2 * x)
assert seen == [(2, 4)] * 8; seen.clear()

@custom_partitioning
def normalized(a):
    return a / jnp.linalg.norm(a, axis=-1, keepdims=True)

def partition(mesh, arguments, result):
    seen.append(arguments[0].sharding.spec)
    rows = NamedSharding(mesh, P(arguments[0].sharding.spec[0], None))
    return mesh, lambda a: a / jnp.linalg.norm(a, axis=-1, keepdims=True), rows, (rows,)

normalized.def_partition(partition=partition, sharding_rule="i j -> i j",
                         infer_sharding_from_operands=lambda m, a, r: a[0].sharding)
for got in runs(jax.jit(lambda a: normalized(a + 1))):
    assert np.allclose(got, (x + 1) / np.linalg.norm(x + 1, axis=-1, keepdims=True))
assert seen == [P("x", None)], seen

spmd.register_custom_call(
    "users_row_sum",
    evaluate=lambda call, operands: operands[0].sum(1),
    sharding_rule=lambda call: "#sdy.op_sharding_rule<([i, j])->([i]) {i=8, j=4} need_replication={j}>",
)
row_sum = jax.jit(lambda a: jax.ffi.ffi_call("users_row_sum", jax.ShapeDtypeStruct((8,), np.float32))(a * 2))
module = spmd.from_jax(row_sum, a)
calls = [c for c in spmd.partition(module, 4).all_instructions() if c.opcode.value == "custom-call"]
assert [c.operand(0).dims for c in calls] == [(2, 4)], "each device sums its own rows"
for got in runs(row_sum):
    assert np.array_equal(got, 2 * x.sum(1))
print("right")
"""


def test_python_inside_of_jax() -> None:
    root = ROOT
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=root, capture_output=True, text=True, timeout=300
    )
    assert done.stdout.endswith("right\n"), done.stderr
