"""Time the step from one thunk to the next, and a loop of trivial trips beside that of XLA CPU (if jax is there).

    python -m benchmarks.native.dispatch [--thunks 1000] [--trips 10000] [--rounds 30] [--json FILE]

A trivial thunk adds two numbers. ``segment`` runs that many as one table of native code, ``ctypes`` one native call
after the other from Python, ``numpy`` as many calls of np.add. Figures are the least of the rounds, in turn. The loop
counts to ``trips``, through the whole step of an executable on one device, and of a jitted function.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

import numpy as np

import spmd
from benchmarks.timing.turns import Work, least_seconds
from benchmarks.timing.xla_flags import ONE_THREAD
from collectives.communicator.liveness.status_table import private_position
from launch.report.environment import describe_environment
from runtime.cpu.kernels.loop.loop import bind_operation
from runtime.cpu.kernels.native_call import NativeAction
from runtime.cpu.step.device_table import Table
from runtime.cpu.step.segment import Segment, SegmentRow
from runtime.cpu.step.worker import Worker
from runtime.program.scalar_program import ElementSignature
from spmd.hlo import Opcode
from spmd.shape import PrimitiveType

LOOP = """HloModule counting
condition {{
  state = (s32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  n = s32[] constant({trips})
  ROOT more = pred[] compare(i, n), direction=LT
}}
body {{
  state = (s32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[] get-tuple-element(state), index=1
  factor = f32[] constant(0.999)
  y = f32[] multiply(x, factor)
  ROOT both = (s32[], f32[]) tuple(next, y)
}}
ENTRY main {{
  x = f32[] parameter(0)
  zero = s32[] constant(0)
  start = (s32[], f32[]) tuple(zero, x)
  end = (s32[], f32[]) while(start), condition=condition, body=body
  ROOT y = f32[] get-tuple-element(end), index=1
}}
"""


def dispatch_work(count: int) -> dict[str, Work]:
    """Ways to run ``count`` trivial thunks."""
    signature = ElementSignature(Opcode.ADD, (PrimitiveType.F32,) * 2, PrimitiveType.F32)
    places = [np.zeros((), np.float32) for _ in range(count + 2)]
    actions = []
    for x, y, out in zip(places, places[1:], places[2:], strict=False):
        action = bind_operation(signature, (x, y), out)
        assert isinstance(action, NativeAction)
        actions.append(action)
    rows = tuple(
        SegmentRow(number, call, call.record)
        for number, action in enumerate(actions)
        for call in action.calls
    )
    worker = Worker([Table(Segment(rows, tuple(actions)), private_position())], _wait_for_nobody, 0)
    triples = list(zip(places, places[1:], places[2:], strict=False))

    def by_ctypes() -> None:
        for action in actions:
            action()

    def by_numpy() -> None:
        for x, y, out in triples:
            np.add(x, y, out=out)

    return {"segment": worker.run, "ctypes": by_ctypes, "numpy": by_numpy}


def _wait_for_nobody(_rank: int, _row: SegmentRow) -> bool:
    """There are no collectives."""
    return True


def loop_work(trips: int) -> dict[str, Work]:
    """Ways to run the loop; each returns when its result is there."""
    executable = spmd.compile(spmd.parse(LOOP.format(trips=trips)), devices=1)
    x = executable.put([np.ones((), np.float32)])
    work: dict[str, Work] = {"while": lambda: executable.run(x)}
    jitted = jax_loop(trips)
    if jitted is not None:
        work["while (XLA)"] = jitted
    return work


def jax_loop(trips: int) -> Work | None:
    try:
        import jax
    except ImportError:
        return None
    step = jax.jit(
        lambda x: jax.lax.while_loop(
            lambda s: s[0] < trips,
            lambda s: (s[0] + 1, s[1] * np.float32(0.999)),
            (np.int32(0), x),
        )[1]
    )
    one = jax.numpy.ones((), np.float32)
    return lambda: step(one).block_until_ready()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--thunks", type=int, default=1000)
    parser.add_argument("--trips", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    environment = describe_environment()
    print(json.dumps(environment))
    thunks = least_seconds(dispatch_work(options.thunks), options.rounds)
    per_thunk = {name: 1e6 * seconds / options.thunks for name, seconds in thunks.items()}
    for name, us in per_thunk.items():
        print(f"{name:12s} {us:8.4f} us a thunk, {options.thunks} of them")
    loops = least_seconds(loop_work(options.trips), options.rounds)
    per_loop = {name: 1e6 * seconds for name, seconds in loops.items()}
    for name, us in per_loop.items():
        print(f"{name:12s} {us:8.1f} us, {options.trips} trips")
    if options.json:
        figures = {"environment": environment, "us_per_thunk": per_thunk, "us_per_loop": per_loop}
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    os.environ.update(ONE_THREAD)
    sys.exit(main())
