"""Collectives of jaxlib's CPU client, within one process or by gloo between processes: a peer of node_collectives.py.

    python -m benchmarks.communication.jax_collectives --devices 2 [--gloo] [--dtype f32] [--kinds ...] [--sizes ...]
    [--rounds 15]

Prints one JSON object: {"kind bytes": {"call": seconds, "loop": seconds}}. ``call``: a jitted function that is one
collective, from the call until its result is there, operands on the devices. ``loop``: the same collective in a loop
of one program, so that the client's own dispatch does not count; a loop carries the operand, and where the result
differs in size, a trip also copies one part. Figures are the least of the rounds. Sizes are bytes of the larger of one
device's operand and result, as in mpi_collectives.py. With --gloo there is one device in each of so many processes, a
figure is the slowest one's, and calls alone are timed: loops of gloo's collectives do not always end.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.timing.collective_rounds import calls_in_round, rounds_of, trips
from benchmarks.timing.turns import seconds

AXIS = "x"
DTYPES = {"f32": "float32", "bf16": "bfloat16"}
#: Seconds in which the processes of a --gloo run must have ended.
PATIENCE = 30


def collective(kind: str, count: int) -> Callable[[Any], Any]:
    """Return the function that one device applies to its array."""
    from jax import lax

    ring = [(i, (i + 1) % count) for i in range(count)]
    table: dict[str, Callable[[Any], Any]] = {
        "all-reduce": lambda x: lax.psum(x, AXIS),
        "all-gather": lambda x: lax.all_gather(x, AXIS, tiled=True),
        "reduce-scatter": lambda x: lax.psum_scatter(x, AXIS, tiled=True),
        "all-to-all": lambda x: lax.all_to_all(x, AXIS, 0, 0, tiled=True),
        "collective-permute": lambda x: lax.ppermute(x, AXIS, ring),
    }
    return table[kind]


def repeated(kind: str, count: int, part: int, times: int) -> Callable[[Any], Any]:
    """The collective so many ``times``; what differs in size from its operand is cut, or takes a part's place."""
    from jax import lax

    once = collective(kind, count)

    def trip(_: Any, x: Any) -> Any:
        if kind == "all-gather":
            return once(x)[-part:]
        if kind == "reduce-scatter":
            return lax.dynamic_update_slice(x, once(x), (lax.axis_index(AXIS) * part,))
        return once(x)

    return lambda x: lax.fori_loop(0, times, trip, x)


def measure(kind: str, size: int, dtype: str, rounds: int) -> dict[str, float]:
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    devices = jax.devices()
    count = len(devices)
    element = np.dtype(getattr(jnp, DTYPES[dtype]))
    elements = size // element.itemsize
    part = elements // count
    spec = PartitionSpec(AXIS)
    mesh = Mesh(np.array(devices), (AXIS,))
    sharding = NamedSharding(mesh, spec)

    def on_devices(each: int) -> Any:
        local = np.zeros(each, element)
        return jax.make_array_from_callback((each * count,), sharding, lambda _: local)

    def timed(function: Callable[[Any], Any], operand: Any) -> float:
        mapped = jax.shard_map(function, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
        run = jax.jit(mapped)
        work = lambda: jax.block_until_ready(run(operand))  # noqa: E731
        seconds(work, 2)
        return min(seconds(work, calls_in_round(size)) for _ in range(rounds_of(size, rounds)))

    operand = on_devices(part if kind == "all-gather" else elements)
    call = timed(collective(kind, count), operand)
    if jax.process_count() > 1:
        return {"call": call}
    loop = timed(repeated(kind, count, part, trips(size)), operand) / trips(size)
    return {"call": call, "loop": loop}


def start_processes(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """One process for each device; their figures' maxima."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{found.getsockname()[1]}"
    base = [sys.executable, "-m", "benchmarks.communication.jax_collectives", *sys.argv[1:]]
    jobs = [
        subprocess.Popen(
            [*base, "--address", address, "--number", str(number)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(options.devices)
    ]
    try:
        said = [job.communicate(timeout=PATIENCE)[0] for job in jobs]
    finally:
        for job in jobs:
            job.kill()  # whoever waits for one that is gone
    answers = [json.loads(lines.splitlines()[-1]) for lines in said]  # gloo greets first
    slowest = partial(max, key=lambda figures: figures["call"])
    return {name: slowest(answer[name] for answer in answers) for name in answers[0]}


def join(options: argparse.Namespace) -> None:
    """Make jax see the devices that were asked for, here or in all processes."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    if not options.gloo:
        flag = f"--xla_force_host_platform_device_count={options.devices}"
        os.environ["XLA_FLAGS"] = flag
        return
    import jax

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(options.address, options.devices, options.number)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--gloo", action="store_true")
    parser.add_argument("--dtype", default="f32", choices=sorted(DTYPES))
    parser.add_argument("--kinds", default="all-reduce")
    parser.add_argument("--sizes", default="1024")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    parser.add_argument("--number", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.gloo and options.address is None:
        print(json.dumps(start_processes(options)))
        return 0
    join(options)
    figures = {
        f"{kind} {size}": measure(kind, int(size), options.dtype, options.rounds)
        for size in options.sizes.split(",")
        for kind in options.kinds.split(",")
    }
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
