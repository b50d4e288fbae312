"""Time XLA CPU on a logical module as one device's program: shardings mean nothing there, no collective is made.

    python -m benchmarks.xla_one_device MODULE [--repeat 10] [--warmup 2]

Needs jaxlib. Prints {"step_ms": {"median", "min", "max"}}, with all cores at XLA's disposal. Inputs are small random
numbers (integers 0 and 1), on the device before a step and made again for the next, since steps may consume them.
A module that is written per device (its collectives and manual regions are part of the program) has no such time: exit
code 1.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

#: Calls that only a program for several devices holds.
PER_DEVICE = re.compile(
    r"SPMDFullToShardShape|\b(all-reduce|all-gather|all-to-all|reduce-scatter|collective-\w+)(-start)?\("
)
DEVIATION = 0.05


def inputs_of(shapes: Any) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    arrays = []
    for shape in shapes:
        dims, dtype = shape.dimensions(), np.dtype(shape.numpy_dtype())
        if dtype.kind in "iub":
            arrays.append(rng.integers(0, 2, dims).astype(dtype))
        else:
            arrays.append((DEVIATION * rng.standard_normal(dims)).astype(dtype))
    return arrays


def step_times(text: str, repeat: int, warmup: int) -> list[float]:
    """Milliseconds of ``repeat`` steps."""
    import jax
    from jaxlib import _hlo, _jax

    computation = _hlo.XlaComputation(
        _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
    )
    device = jax.devices()[0]
    compiled = device.client.compile_and_load(
        _jax.mlir.xla_computation_to_mlir_module(computation),
        _jax.DeviceList((device,)),
        _jax.CompileOptions(),
    )
    arrays = inputs_of(computation.program_shape().parameter_shapes())
    times = []
    for _ in range(warmup + repeat):
        placed = jax.block_until_ready([jax.device_put(x, device) for x in arrays])
        start = time.perf_counter()
        outputs = compiled.execute_sharded(placed).disassemble_into_single_device_arrays()
        jax.block_until_ready(outputs)
        times.append(1e3 * (time.perf_counter() - start))
    return times[warmup:]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("module", type=Path)
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=2)
    options = parser.parse_args()
    text = options.module.read_text()
    if PER_DEVICE.search(text):
        print(f"{options.module}: the program is one of several devices", file=sys.stderr)
        return 1
    times = step_times(text, options.repeat, options.warmup)
    figures = {"median": statistics.median(times), "min": min(times), "max": max(times)}
    print(json.dumps({"step_ms": figures}))
    return 0


if __name__ == "__main__":
    os.environ["JAX_PLATFORMS"] = "cpu"
    sys.exit(main())
