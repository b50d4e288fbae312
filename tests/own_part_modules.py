"""Per-device programs in which collectives write or read this rank's own part of an all-gather's result, an output.

Each kind of collective stands before an all-gather with equal and with other groups, and a permute reads what is
gathered. The offset of the part depends on the rank, and the part is too large for slots.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from runtime.compile import build_executable
from spmd.evaluator import evaluate_partitions
from spmd.hlo import HloModule
from spmd.text.parser import parse_module
from tests.collectives.schedule.random_runs import Run

ELEMENTS = 4096
"""Elements of a part; 16 KB in f32, more than a slot holds."""

_KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "permute", "broadcast")


def modules(size: int) -> Iterator[HloModule]:
    """Yield modules for an even number of devices, for several groupings before and in the all-gather."""
    everyone, half = list(range(size)), size // 2
    before = [[everyone], [[i, i + half] for i in range(half)]]
    after = [[everyone[::-1]], [everyone[:half], everyone[half:]] if size > 2 else [everyone]]
    for first, second in itertools.product(before if size > 2 else before[:1], after):
        yield _module(first, second)


def _module(first: list[list[int]], second: list[list[int]]) -> HloModule:
    size, members = sum(map(len, first)), len(first[0])
    whole = f"f32[{ELEMENTS * len(second[0])}]"
    groups, ring = _braces(first), _braces([[i, (i + 1) % size] for i in range(size)])
    ids = "use_global_device_ids=true"
    lines, roots = [], []
    for i, kind in enumerate(_KINDS):
        made = {
            "all-reduce": f"all-reduce(y{i}), to_apply=sum, replica_groups={groups}, {ids}",
            "all-gather": f"all-gather(y{i}), dimensions={{0}}, replica_groups={groups}, {ids}",
            "reduce-scatter": f"reduce-scatter(y{i}), dimensions={{0}}, to_apply=sum, replica_groups={groups}, {ids}",
            "all-to-all": f"all-to-all(y{i}), dimensions={{0}}, replica_groups={groups}",
            "permute": f"collective-permute(y{i}), source_target_pairs={ring}",
            "broadcast": f"collective-broadcast(y{i}), replica_groups={groups}",
        }[kind]
        scale = {"all-gather": 1 / members, "reduce-scatter": members}.get(kind, 1)
        taken = f"f32[{int(ELEMENTS * scale)}]"
        gather = f"dimensions={{0}}, replica_groups={_braces(second)}, {ids}"
        lines += [
            f"x{i} = {taken} parameter({i})",
            f"y{i} = {taken} multiply(x{i}, x{i})",
            f"a{i} = f32[{ELEMENTS}] {made}, channel_id={4 * i + 1}",
            f"p{i} = f32[{ELEMENTS}] collective-permute(a{i}), channel_id={4 * i + 2}, source_target_pairs={ring}",
            f"g{i} = {whole} all-gather(a{i}), channel_id={4 * i + 3}, {gather}",
            f"h{i} = {whole} all-gather(p{i}), channel_id={4 * i + 4}, {gather}",
        ]
        roots += [f"g{i}", f"h{i}"]
    body = "\n  ".join(lines)
    return parse_module(f"""HloModule own_part, num_partitions={size}

sum {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}

ENTRY main {{
  {body}
  ROOT r = ({", ".join([whole] * len(roots))}) tuple({", ".join(roots)})
}}
""")


def _braces(groups: list[list[int]]) -> str:
    return "{" + ",".join("{" + ",".join(map(str, group)) + "}" for group in groups) + "}"


def check_run(module: HloModule, run: Run) -> int:
    """Compare what ``run`` gives with the evaluator, bit by bit, and return how many values lie in their own parts."""
    rng = np.random.default_rng(1)
    inputs = [
        [rng.integers(-9, 9, x.dims).astype(np.float32) for x in module.entry.parameters]
        for _ in range(module.num_partitions)
    ]
    wanted = evaluate_partitions(module, inputs)
    for rank, got in run(module, inputs).items():
        for one, other in zip(got, wanted[rank], strict=True):
            np.testing.assert_array_equal(one, other, err_msg=f"rank {rank}")
    return build_executable(module, check=False).dump_buffers().count("a device's one of")
