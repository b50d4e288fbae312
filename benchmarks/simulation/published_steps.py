"""Published training steps beside the simulated ones.

    python -m benchmarks.simulation.published_steps FOLDER [--ablation] [--json F]
        [--xla PYTHON --spec SPEC --cache FOLDER]

FOLDER holds the modules (../shared/public). Each point is simulated from its module alone: no constant of a machine's
description comes from a step. Each program is simulated as the module is, and rewritten to the published one, whose
projections of attention are saved and whose parameters are sharded over twice as many devices.

PYTHON has jax with its CUDA plugin: with it, the programs are also compiled by XLA for the GPU that SPEC describes
(``xla_gpu_program``). ``--ablation`` simulates the last row of each point once more for each part of the model that is
left out.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks.simulation.more_shards import with_more_shards
from benchmarks.simulation.saved_attention import with_saved_attention
from benchmarks.simulation.xla_gpu_program import XlaGpu, flags_for
from collectives.cost.roofline import RooflineEstimator
from collectives.simulate.data_parallel import with_more_replicas
from collectives.simulate.simulate import SimulationOptions, simulate
from collectives.simulate.stragglers import slowest_of
from launch.cli.programs.simulated_program import compiled_for
from launch.options import CompileOptions
from launch.pipeline import Compilation, partition
from spmd.analysis.attention_cost import AttentionShape
from spmd.hlo import HloModule
from spmd.machine.description import MachineDescription
from spmd.machine.named import machine_named
from spmd.shape import PrimitiveType
from spmd.text.parser import parse_module


@dataclass(frozen=True)
class Point:
    """A published step. ``copies``: how many times as many replicas of the data axis as the module has."""

    name: str
    module: str
    machine: str
    copies: int
    seconds: float
    source: str
    differences: str


_MAXTEXT = "MaxText, Llama 3 70B, bf16, sequences of 8192, 2 for each device, 8 H100 a node"
_LLAMA = (
    "the published program saves the projections of attention and is FSDP over 128 devices; the module computes them "
    "again and is FSDP over 64"
)
POINTS = (
    Point("Llama 3 70B", "hlo_llama31_70b_bf16_16x8", "dgx-h100", 1, 15.563, _MAXTEXT, _LLAMA),
    Point("Llama 3 70B", "hlo_llama31_70b_bf16_16x8", "dgx-h100", 4, 15.519, _MAXTEXT, _LLAMA),
)
#: Times as many shards of each parameter as the module has.
_SHARDS = 2
#: The part that only programs of XLA can be without: the times by which its scheduler orders kernels.
_PROFILE = "a profile in XLA's scheduler"


@dataclass(frozen=True)
class Row:
    name: str
    form: str
    compiler: str
    devices: int
    left_out: str
    published_s: float
    step_s: float
    best_s: float
    worst_s: float
    cpu_s: float

    @property
    def error(self) -> float:
        return self.step_s / self.published_s - 1.0

    def text(self) -> str:
        return (
            f"{self.form:<12} {self.compiler:<8} {self.devices:>7} {self.left_out:<34} {self.published_s:9.3f} "
            f"{self.step_s:9.3f} {100 * self.error:+7.1f} % {self.best_s:9.3f} {self.worst_s:9.3f} {self.cpu_s:7.1f}"
        )


HEADER = (
    f"{'program':<12} {'compiler':<8} {'devices':>7} {'without':<34} {'published':>9} {'simulated':>9} "
    f"{'error':>9} {'alike':>9} {'19 of 20':>9} {'CPU s':>7}"
)


def _bursts(machine: MachineDescription) -> MachineDescription:
    """Return the machine with the rates of short products: 0.853 of the published ones (tiles stay)."""
    rates = tuple(
        (kind, replace(one, attained=one.attained * 0.853 / 0.767)) for kind, one in machine.rates
    )
    table = machine.fused_attention
    assert table is not None
    return replace(
        machine,
        rates=rates,
        attained=replace(machine.attained, matrix=0.853),
        fused_attention=replace(table, attained=1.0),
    )


def _one_attention(machine: MachineDescription) -> MachineDescription:
    """Return the machine with one rate for all attention: that of long forward passes without a mask."""
    table = machine.fused_attention
    assert table is not None
    rate = table.rate(PrimitiveType.BF16, AttentionShape(128, table.keys[-1]))
    assert rate is not None
    keys = len(table.keys)
    series = tuple(
        replace(one, flops=(rate / table.attained,) * keys)
        for one in table.series
        if one.kind is PrimitiveType.BF16
    )
    return replace(machine, fused_attention=replace(table, series=series))


def _without_protocols(machine: MachineDescription) -> MachineDescription:
    ways = tuple(replace(way, protocols=(), multicast=None) for way in machine.exchanges)
    return replace(machine, exchanges=ways)


def _without_busy(machine: MachineDescription) -> MachineDescription:
    ways = tuple(replace(way, busy=0.0) for way in machine.exchanges)
    return replace(machine, exchanges=ways)


#: Features that an ablation leaves out, and the machine without them.
ABLATIONS: dict[str, Callable[[MachineDescription], MachineDescription]] = {
    "power limits (rates of bursts)": _bursts,
    "tiles and waves": lambda machine: replace(machine, tiled=None),
    "attention by direction and mask": _one_attention,
    "NCCL's rings and protocols": _without_protocols,
    "what collectives take of compute": _without_busy,
    "the slowest of many devices": lambda machine: replace(machine, spread=0.0),
}


@dataclass(frozen=True)
class Program:
    """A per-device program of a point, before compilation by ``xla``, or by this project if that is None.

    form: "module", or "as published".
    """

    point: Point
    form: str
    module: HloModule
    xla: XlaGpu | None

    def measured(self, left_out: str = "") -> Row:
        """Return the row of the simulation without the part ``left_out`` of the model."""
        begun = time.process_time()
        point = self.point
        machine = machine_named(point.machine)
        if left_out and left_out != _PROFILE:
            machine = replace(ABLATIONS[left_out](machine), name="ablated")
        options = CompileOptions(machine=machine, keep_attention_calls=True)
        compilation = compiled_for(self._given(left_out), None, options)
        devices = compilation.devices
        step, best, worst = (
            _seconds(compilation, one)
            for one in (slowest_of(machine, devices), machine, slowest_of(machine, devices, 0.95))
        )
        spent = time.process_time() - begun
        compiler = "spmd" if self.xla is None else "XLA:GPU"
        return Row(
            point.name,
            self.form,
            compiler,
            devices,
            left_out,
            point.seconds,
            step,
            best,
            worst,
            spent,
        )

    def _given(self, left_out: str) -> HloModule:
        """Return the program for the simulator; that of XLA is scheduled, with kernels for the whole machine."""
        if self.xla is None:
            return self.module
        options = CompileOptions(
            machine=machine_named(self.point.machine), keep_attention_calls=True
        )
        flags = flags_for(self.module.num_partitions)
        without, guided = self.xla.program(self.module, flags, options)
        return without if left_out == _PROFILE else guided

    def parts(self) -> tuple[str, ...]:
        """Return the parts of the model that can be left out."""
        return (*ABLATIONS, *([_PROFILE] if self.xla is not None else []))


def programs(point: Point, module: HloModule, xla: XlaGpu | None) -> list[Program]:
    """Return the programs of ``point``, whose ``module`` is partitioned or can be; the most faithful one comes last."""
    options = CompileOptions(machine=machine_named(point.machine), keep_attention_calls=True)
    given = partition(module, options=options)
    if point.copies > 1:
        given = with_more_replicas(given, point.copies)
    published = with_saved_attention(with_more_shards(given, _SHARDS))
    forms = {"module": given, "as published": published}
    return [
        Program(point, form, one, compiler)
        for compiler in ([None, xla] if xla is not None else [None])
        for form, one in forms.items()
    ]


def _seconds(compilation: Compilation, machine: MachineDescription) -> float:
    estimator = RooflineEstimator.of(compilation.module, machine)
    return simulate(compilation.module, [estimator], SimulationOptions(busy=machine.busy)).seconds


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.simulation.published_steps",
        description="Simulate published training steps, and print the published seconds beside the simulated ones.",
    )
    parser.add_argument("folder", type=Path, help="where the modules are")
    parser.add_argument(
        "--ablation", action="store_true", help="simulate once more without each part of the model"
    )
    parser.add_argument("--json", type=Path, metavar="F", help="write the rows")
    parser.add_argument(
        "--xla", type=Path, metavar="PYTHON", help="compile with the XLA of its jax, too"
    )
    parser.add_argument(
        "--spec", type=Path, help="the GPU that XLA compiles for, a GpuTargetConfigProto as text"
    )
    parser.add_argument("--cache", type=Path, help="folder that keeps what XLA has compiled")
    options = parser.parse_args(arguments)
    if (options.xla is None) != (options.spec is None):
        parser.error("--xla needs --spec, and the reverse")
    with tempfile.TemporaryDirectory() as folder:
        xla = None
        if options.xla is not None:
            xla = XlaGpu(options.xla, options.spec, options.cache or Path(folder))
        rows = _printed(options.folder, xla, ablation=options.ablation)
    for said in dict.fromkeys(f"{point.source}: {point.differences}" for point in POINTS):
        print(said)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    return 0


def _printed(folder: Path, xla: XlaGpu | None, *, ablation: bool) -> list[Row]:
    """Print the rows of all points and return them."""
    rows = []
    print(HEADER)
    for point in POINTS:
        text = (folder / f"{point.module}.hlo").read_text(encoding="utf-8")
        found = programs(point, parse_module(text), xla)
        cases = [(one, "") for one in found]
        if ablation:
            cases += [(found[-1], part) for part in found[-1].parts()]
        for program, part in cases:
            rows.append(program.measured(part))
            print(rows[-1].text(), flush=True)
    return rows


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
