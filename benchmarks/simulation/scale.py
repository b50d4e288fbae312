"""Measure how simulating grows with the number of devices.

    python -m benchmarks.simulation.scale [--meshes 2x2x2,8x8x8,32x16x32] [--layers 12] [--topology dgx-h100] [--json F]

A GPT training step (benchmarks/gpt_step.py) on each mesh of (data, fsdp, model), its dimensions enlarged so that all
divide: instructions of the scheduled module, classes of devices that are simulated, seconds (CPU time of one process)
of the stages that make the schedule and of the simulation with its cost model, and what it found.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.gpt_step import GptSizes, gpt_step
from collectives.cost.roofline import RooflineEstimator
from collectives.simulate.simulate import SimulationOptions, simulate
from launch.cli.programs.simulated_program import compiled_for
from launch.options import CompileOptions
from launch.target.machine_option import described
from spmd.machine.description import MachineDescription

#: Seconds in which a step of 16,384 devices is to be simulated.
WANTED = 60.0
HEADER = (
    f"{'devices':>8s} {'instructions':>12s} {'collectives':>11s} {'classes':>7s} {'compile s':>9s} "
    f"{'simulate s':>10s}   {'step ms':>8s} {'exposed ms':>10s} {'bound ms':>8s}"
)


@dataclass(frozen=True)
class Row:
    devices: int
    instructions: int
    collectives: int
    classes: int
    compile_s: float
    simulate_s: float
    step_s: float
    exposed_s: float
    lower_bound_s: float

    def text(self) -> str:
        return (
            f"{self.devices:8,d} {self.instructions:12,d} {self.collectives:11,d} {self.classes:7d} "
            f"{self.compile_s:9.2f} {self.simulate_s:10.2f}   {1e3 * self.step_s:8.2f} "
            f"{1e3 * self.exposed_s:10.2f} {1e3 * self.lower_bound_s:8.2f}"
        )


def measure(mesh: tuple[int, int, int], layers: int, machine: MachineDescription) -> Row:
    module = gpt_step(GptSizes.for_mesh(mesh, layers))
    start = time.process_time()
    program = compiled_for(module, None, CompileOptions(machine=machine)).module
    compiled = time.process_time()
    busy = machine.busy
    found = simulate(
        program, [RooflineEstimator.of(program, machine)], SimulationOptions(busy=busy)
    )
    end = time.process_time()
    return Row(
        found.devices,
        program.instruction_count,
        len(found.collectives),
        found.classes,
        compiled - start,
        end - compiled,
        found.seconds,
        found.exposed,
        found.bound.seconds,
    )


def _mesh(text: str) -> tuple[int, int, int]:
    data, fsdp, model = map(int, text.split("x"))
    return data, fsdp, model


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--meshes", default="2x2x2,8x8x8,32x16x32")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--topology", type=described, default="dgx-h100")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(argv)
    rows = []
    print(HEADER, flush=True)
    for text in options.meshes.split(","):
        rows.append(measure(_mesh(text), options.layers, options.topology))
        print(rows[-1].text(), flush=True)
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows]))
    return 0 if all(row.simulate_s < WANTED for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
