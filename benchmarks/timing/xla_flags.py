"""Settings of the environment under which XLA CPU computes as the benchmarks want it; jax reads them when imported."""

from __future__ import annotations

#: Kernels one after the other on the caller's thread, as ours on one device.
ONE_THREAD = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "JAX_PLATFORMS": "cpu",
}
