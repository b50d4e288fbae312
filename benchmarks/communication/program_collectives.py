"""Our collectives within compiled programs: a leg of node_collectives.py, made like jax_collectives.py.

    python -m benchmarks.communication.program_collectives --devices 2 [--dtype f32] [--kinds ...] [--sizes ...]
    [--rounds 15] python -m launch.mpirun -n 2 -- -m benchmarks.communication.program_collectives ...

On devices of one process, or on one in each rank. Prints one JSON object: {"kind bytes": {"call": seconds, "loop":
seconds}}. ``call``: a program that is one collective, from the call until its result is there, operands on the
devices. ``loop``: a trip of the same collective in a loop of one program, which carries the operand; where the result
differs in size, the trip also copies one part, as jaxlib's does. Figures are the least of the rounds; sizes are bytes
of the larger of one device's operand and result.
"""

from __future__ import annotations

import argparse
import json
import sys

import numpy as np

import spmd
from benchmarks.timing.collective_rounds import calls_in_round, rounds_of, trips
from benchmarks.timing.turns import seconds
from launch.ranks.rank_environment import world_of_environment
from spmd.shape import PrimitiveType

COLLECTIVES = {
    "all-reduce": "y = {whole} all-reduce(x), channel_id=1, {groups}, use_global_device_ids=true, to_apply=sum",
    "all-gather": "y = {whole} all-gather(x), channel_id=1, {groups}, use_global_device_ids=true, dimensions={{0}}",
    "reduce-scatter": (
        "y = {part} reduce-scatter(x), channel_id=1, {groups}, use_global_device_ids=true, dimensions={{0}}, "
        "to_apply=sum"
    ),
    "all-to-all": "y = {whole} all-to-all(x), channel_id=1, {groups}, dimensions={{0}}",
    "collective-permute": "y = {whole} collective-permute(x), channel_id=1, source_target_pairs={{{ring}}}",
}
#: Instructions after the collective in a loop that carries its operand.
BEHIND = {
    "all-gather": "\n  z = {part} slice(y), slice={{[{rest}:{elements}]}}",
    "reduce-scatter": """
  id = u32[] partition-id()
  size = u32[] constant({part_elements})
  at = u32[] multiply(id, size)
  z = {whole} dynamic-update-slice(x, y, at)""",
}

HEAD = """HloModule {name}, num_partitions={count}
sum {{
  a = {scalar} parameter(0)
  b = {scalar} parameter(1)
  ROOT r = {scalar} add(a, b)
}}
"""
CALL = """ENTRY main {{
  x = {carried} parameter(0)
  ROOT {collective}
}}
"""
LOOP = """condition {{
  state = (s32[], {carried}) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  n = s32[] constant({trips})
  ROOT more = pred[] compare(i, n), direction=LT
}}
body {{
  state = (s32[], {carried}) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = {carried} get-tuple-element(state), index=1
  {collective}{behind}
  ROOT both = (s32[], {carried}) tuple(next, {result})
}}
ENTRY main {{
  x = {carried} parameter(0)
  zero = s32[] constant(0)
  start = (s32[], {carried}) tuple(zero, x)
  end = (s32[], {carried}) while(start), condition=condition, body=body
  ROOT y = {carried} get-tuple-element(end), index=1
}}
"""


def module_text(kind: str, count: int, elements: int, dtype: str, trips: int) -> str:
    """A program that is one collective, or with ``trips`` a loop of as many."""
    part = elements // count
    words = {
        "whole": f"{dtype}[{elements}]",
        "part": f"{dtype}[{part}]",
        "part_elements": part,
        "elements": elements,
        "rest": elements - part,
        "groups": f"replica_groups={{{{{','.join(map(str, range(count)))}}}}}",
        "ring": ",".join(f"{{{i},{(i + 1) % count}}}" for i in range(count)),
    }
    parts = {
        "collective": COLLECTIVES[kind].format(**words),
        "behind": BEHIND.get(kind, "").format(**words),
        "result": "z" if kind in BEHIND else "y",
        "carried": words["part" if kind == "all-gather" else "whole"],
    }
    head = HEAD.format(name=kind.replace("-", "_"), count=count, scalar=f"{dtype}[]")
    body = (LOOP if trips else CALL).format(trips=trips, **words, **parts)
    return head + body


def measure(kind: str, count: int, size: int, dtype: str, rounds: int) -> dict[str, float]:
    element = PrimitiveType(dtype)
    elements = size // element.byte_size

    def timed(trips: int) -> float:
        module = spmd.parse(module_text(kind, count, elements, dtype, trips))
        executable = spmd.compile(module, devices=count)
        (shape,) = (parameter.array_shape for parameter in executable.module.entry.parameters)
        operand = np.zeros(shape.dims, element.numpy)
        state = executable.put_tiles([[operand] for _ in executable.devices])
        work = lambda: executable.run(state)  # noqa: E731
        seconds(work, 3)
        return min(seconds(work, calls_in_round(size)) for _ in range(rounds_of(size, rounds)))

    return {"call": timed(0), "loop": timed(trips(size)) / trips(size)}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--dtype", default="f32")
    parser.add_argument("--kinds", default="all-reduce")
    parser.add_argument("--sizes", default="1024")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    figures = {
        f"{kind} {size}": measure(kind, options.devices, int(size), options.dtype, options.rounds)
        for size in options.sizes.split(",")
        for kind in options.kinds.split(",")
    }
    world = world_of_environment()
    if world is None or world[0] == 0:
        print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
