"""Programs as they are planned for a GPU, beside XLA:GPU's: no GPU is needed.

    python -m benchmarks.gpu.static --figures gpu_figures.json --corpus DIR [--only RE]

Each case of the figures that is in DIR is compiled for the described machine and planned for its first device. Counted
are kernels in PTX (also conversions around library calls), library calls, kernels that the host computes, the bytes
that kernels read and write, temporary memory and the bytes of collectives' results. The body of a loop counts as often
as it runs. XLA's temporary memory is taken without the workspace of its libraries. Ratios are ours over XLA's; the last
line has their geometric means, of cases where neither figure is 0. The exit status is 1 if a bar is missed: kernels at
most 0.5 in the mean and 1.0 in each case, library calls 1.0 in each, bytes 0.65 and 1.0, temporary memory 0.85 and
collective bytes 0.85 in the mean, no kernel on the host.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from launch.options import CompileOptions
from launch.pipeline import compile_module
from launch.target.machine_option import machine_for
from runtime.executable import Executable
from runtime.gpu.codegen.launch import KernelArgument
from runtime.gpu.command import Command
from runtime.gpu.commands.horizontal import HorizontalCommand
from runtime.gpu.commands.kernel import GeneratedKernelCommand, HostedCommand, LibraryCommand
from runtime.gpu.commands.library_sequence import LibrarySequenceCommand
from runtime.gpu.commands.sequence import plan_commands
from runtime.gpu.commands.while_loop import CountedLoopCommand
from runtime.gpu.launch_maker import launch_maker
from runtime.gpu.libraries.sequence import KernelStage
from runtime.gpu.options import DEFAULT
from runtime.gpu.planning import Planner
from runtime.program.records.gather_scatter import GatherKernel
from spmd.analysis.cost import module_cost
from spmd.text.parser import parse_module
from tests.runtime.gpu.doubles.host_driver import HostDriver

#: Bytes of XLA's temporary memory that its libraries' workspace takes, where there are library calls.
WORKSPACE = 32 << 20
#: Figure -> (largest geometric mean, largest of a single case; None: any).
BARS: dict[str, tuple[float | None, float | None]] = {
    "kernels": (0.5, 1.0),
    "calls": (None, 1.0),
    "bytes": (0.65, 1.0),
    "temp": (0.85, None),
    "collective_bytes": (0.85, None),
}


@dataclass
class Counts:
    """Figures of one device's part of a program."""

    kernels: int = 0
    calls: int = 0
    bytes: int = 0
    temp: int = 0
    collective_bytes: float = 0
    hosted: list[str] = field(default_factory=list)

    def add(self, commands: Sequence[Command], times: int = 1) -> None:
        for command in commands:
            if isinstance(command, CountedLoopCommand):
                self.add(command.body, times * command.trips)
                continue
            if isinstance(command, HorizontalCommand):
                self.kernels -= times * (len(command.parts) - 1)  # its parts are counted below
            elif isinstance(command, GeneratedKernelCommand):
                self.kernels += times * len(command.launches) - times * len(skipped(command))
                self.bytes += times * touched_bytes(command)
            elif isinstance(command, LibraryCommand):
                self.calls += times
            elif isinstance(command, LibrarySequenceCommand):
                assert command.sequence is not None
                for stage in command.sequence.stages:
                    if isinstance(stage, KernelStage):
                        self.kernels += times * len(stage.launches)
                        moved = (*stage.operands, *stage.results)
                        self.bytes += times * sum(place.view.stored_bytes for place in moved)
                    else:
                        self.calls += times
            elif isinstance(command, HostedCommand):
                self.hosted.append(command.name)
            self.add(tuple(command.nested()), times)


def skipped(command: GeneratedKernelCommand) -> list[tuple[KernelArgument, KernelArgument]]:
    """Return the operand and the result of each launch of ``command`` that is skipped, since they are one array."""
    return [
        launch.unless_same
        for launch in command.launches
        if launch.unless_same is not None
        and command.operands[launch.unless_same[0].number].slice
        == command.results[launch.unless_same[1].number].slice
    ]


def touched_bytes(command: GeneratedKernelCommand) -> int:
    """Return the bytes that a kernel reads and writes. An element that a broadcast repeats counts once.

    Of an array that a kernel gathers from, it reads as many bytes as it gathers. Of an array that it updates in place,
    it writes as many as the other operands have.
    """
    read, written = (
        [array.view.stored_bytes for array in arrays]
        for arrays in (command.operands, command.results)
    )
    if isinstance(command.kernel, GatherKernel):
        array = command.kernel.windows.array
        read[array] = min(read[array], written[0])
    updated = skipped(command)
    for operand, _ in updated:
        read[operand.number] = 0
    for _, result in updated:
        written[result.number] = min(written[result.number], sum(read))
    return sum(read) + sum(written)


def planned(folder: Path, devices: int) -> tuple[Executable, Sequence[Command]]:
    """Return the program of ``folder`` and the commands of its first device, as planned for the described GPU."""
    module = parse_module((folder / "module.hlo").read_text())
    machine = machine_for(None, backend="gpu")
    executable = compile_module(module, devices, CompileOptions(machine=machine))
    planner = Planner(0, devices, launch_maker(HostDriver()), options=DEFAULT)
    return executable, plan_commands(executable.program.thunks, planner)


def ours(folder: Path, devices: int) -> Counts:
    executable, commands = planned(folder, devices)
    counts = Counts(temp=executable.stats.temp)
    counts.add(commands)
    collectives = module_cost(executable.module).collectives.values()
    counts.collective_bytes = sum(kind.bytes for kind in collectives)
    return counts


def theirs(figures: dict[str, Any]) -> Counts:
    calls = sum(figures["libraries"].values())
    return Counts(
        figures["kernel_count"],
        calls,
        figures["touched_bytes"],
        max(0, figures["temp_bytes"] - (WORKSPACE if calls else 0)),
        sum(kind["bytes"] for kind in figures["collectives"].values()),
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--figures", type=Path, required=True, help="XLA:GPU's, as JSON")
    parser.add_argument("--corpus", type=Path, required=True, help="folder of NAME/module.hlo")
    parser.add_argument("--only", default="", help="cases whose name matches this expression")
    options = parser.parse_args()
    figures = json.loads(options.figures.read_text())["figures"]
    missed, ratios = list[str](), dict[str, list[float]]()
    print(f"{'case':20s}" + "".join(f"{name:>28s}" for name in BARS) + "  hosted")
    for name, xla in figures.items():
        folder = options.corpus / name
        if not (folder / "module.hlo").exists() or not re.search(options.only, name):
            continue
        own, peer, cells = ours(folder, xla["devices"]), theirs(xla), ""
        for figure, (_, most) in BARS.items():
            x, y = getattr(own, figure), getattr(peer, figure)
            ratio = x / y if y else math.inf if x else 1.0
            if x and y:
                ratios.setdefault(figure, []).append(ratio)
            cells += f"{x:12,.0f} /{y:12,.0f} "
            if most is not None and ratio > most:
                missed.append(f"{name}: {figure} {ratio:.2f}, at most {most}")
        if own.hosted:
            missed.append(f"{name}: {len(own.hosted)} kernels on the host")
        print(f"{name:20s}{cells}  {len(own.hosted)}", flush=True)
    means = {n: math.exp(sum(map(math.log, own)) / len(own)) for n, own in ratios.items()}
    for figure, mean in means.items():
        most = BARS[figure][0]
        if most is not None and mean > most:
            missed.append(f"{figure}: {mean:.2f} in the mean, at most {most}")
    for line in missed:
        print(f"MISSED {line}")
    print("geometric means: " + ", ".join(f"{name} {mean:.2f}" for name, mean in means.items()))
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
