"""`spmd calibrate [-o F.json]`: measure this machine into a description that compilations find."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from launch.calibrated import calibration_path, keep_calibration
from launch.calibration.machine import CalibrationOptions, Family, described, measure
from launch.cli.output_path import OutputPathError, require_folder, require_writable
from launch.job import UsageError
from launch.object_folder import keep_objects
from launch.rank_environment import world_of_environment
from launch.report.environment import describe_environment
from spmd.machine.description import MachineDescription
from spmd.machine.reader import write_machine

#: Products that are shown, of everything near.
CUBES = (64, 256, 512)
#: Between rounds: others used the machine, or its speed changed; what was measured may be of the worse moment.
UNSTEADY = 0.25


def add_parser(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "calibrate",
        help="measure this machine",
        description="Measure matrix products, convolutions, memory, native loops, dispatch and exchange between two "
        "devices of this process, in half a minute, and write them where later compilations on such a processor find "
        "them. Nothing else should run meanwhile. All ranks of a job must be given the same description: it is "
        "part of what they compare before they compile.",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="F.json",
        help="write to this file instead: it is then used by nobody until it is put in its place",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print the description as one JSON object and nothing else",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    world = world_of_environment()
    if world is not None and world[1] > 1:
        raise UsageError(
            f"calibrate measures all cores from one process: start it alone, not as one of {world[1]} ranks"
        )
    path = options.output or calibration_path()
    _require_place(path, options.output is None)
    keep_objects()
    measuring = CalibrationOptions()
    progress = _Progress(len(measuring.families()))
    found = measure(measuring, progress.begins)
    progress.ends()
    environment = describe_environment()
    cores = f"{environment['cores']} cores of {environment['cpu']}"
    machine = described(cores, measuring, found.seconds)
    text = write_machine(machine)
    _write(options.output, text)
    if options.json:
        print(text, end="")
        return 0
    print(_table(machine))
    for line in _unsteady(found.spreads):
        print(line)
    print(f"{path}: {machine}, measured in {progress.seconds:.1f} s")
    if options.output is not None:
        print(f"compilations look for it in {calibration_path()}")
    return 0


@dataclass
class _Progress:
    """One line of a terminal, on standard error, that is gone in the end; nothing where that is no terminal."""

    count: int
    done: int = 0
    start: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.start

    def begins(self, family: Family) -> None:
        self._show(f"[{self.done}/{self.count}] {self.seconds:.0f} s, measuring {family.name}")
        self.done += 1

    def ends(self) -> None:
        self._show("")

    def _show(self, line: str) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[K{line}")
            sys.stderr.flush()


def _require_place(path: Path, makes_folder: bool) -> None:
    """OutputPathError before anything is measured where it could not be written."""
    if makes_folder:
        require_folder(path.parent)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputPathError(
                f"{path.parent}: cannot be made: {error.strerror or error}"
            ) from error
    require_writable(path)


def _write(output: Path | None, text: str) -> None:
    """Where compilations find it, or to the file that was asked for."""
    try:
        if output is None:
            keep_calibration(text)
        else:
            output.write_text(text, encoding="utf-8")
    except OSError as error:
        path = output or calibration_path()
        raise OutputPathError(f"{path}: cannot be written: {error.strerror or error}") from error


def _unsteady(spreads: Mapping[str, float]) -> list[str]:
    far = [f"{name} {spread:.0%}" for name, spread in spreads.items() if spread > UNSTEADY]
    if not far:
        return []
    told = "something else ran, or the processor's speed changed; the best round counts"
    return [f"  rounds were far apart ({', '.join(far)}): {told}"]


def _table(machine: MachineDescription) -> str:
    lines = [f"{machine.source}"]
    for kind, rates in machine.rates:
        lines.append(
            f"  {kind}: products {rates.matrix / 1e9:.1f} Gflop/s, additions {rates.simple / 1e9:.2f} G/s, "
            f"exp {rates.transcendental / 1e9:.3f} G/s"
        )
    for types in dict.fromkeys(one.types for one in machine.products):
        rates_of_cubes = ", ".join(
            f"{size} cube {2e-9 * size**3 / machine.product_seconds(types, (size,) * 3):.0f}"
            for size in CUBES
        )
        named = " x ".join(map(str, types[:2]))
        lines.append(f"  {named} -> {types[2]}: {rates_of_cubes} Gflop/s")
    for one in machine.convolutions:
        rate = 2e-9 / max(one.multiply_seconds, 1e-15)
        lines.append(f"  {one.kind} convolutions, {one.form.value}: {rate:.0f} Gflop/s at most")
    for level in machine.levels:
        lines.append(f"  {level.name}: {level.bandwidth / 1e9:.1f} GB/s")
    lines.append(
        f"  a kernel {machine.kernel_seconds * 1e6:.2f} us, a row {machine.row_seconds * 1e9:.1f} ns, "
        f"a thunk {machine.thunk_seconds * 1e6:.2f} us"
    )
    for way in machine.exchanges:
        lines.append(f"  {way.name}: {way.bandwidth / 1e9:.1f} GB/s, {way.latency * 1e6:.1f} us")
    return "\n".join(lines)
