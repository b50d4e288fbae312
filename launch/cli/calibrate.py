"""`spmd calibrate [-o F.json]`: measure this machine into a description that compilations find."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from launch.calibrated import calibration_path, keep_calibration
from launch.calibration.machine import CalibrationOptions, measure_machine
from launch.cli.output_path import require_writable
from launch.report.environment import describe_environment
from spmd.machine.description import MachineDescription
from spmd.machine.reader import write_machine

#: Products that are shown, of everything near.
CUBES = (64, 256, 512)


def add_parser(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "calibrate",
        help="measure this machine",
        description="Measure matrix products, convolutions, memory, native loops, dispatch and exchange between two "
        "devices of this process, in under 20 seconds, and write them where later compilations find them. All ranks of "
        "a job must be given the same description: it is part of what they compare before they compile.",
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
    path = options.output or calibration_path()
    if options.output is None:
        path.parent.mkdir(parents=True, exist_ok=True)
    require_writable(path)
    start = time.perf_counter()
    machine = measure_machine(str(describe_environment()["cpu"]), CalibrationOptions())
    text = write_machine(machine)
    if options.output is None:
        keep_calibration(text)
    else:
        path.write_text(text, encoding="utf-8")
    if options.json:
        print(text, end="")
        return 0
    print(_table(machine))
    print(f"{path}: {machine}, measured in {time.perf_counter() - start:.1f} s")
    return 0


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
