"""`spmd calibrate [-o F.json]`: measure this machine into a description that compilations find.

On ranks of several nodes: measure the network between the nodes, and add it to the description of one.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from launch.cache.cache_folder import keep_objects
from launch.calibration.joining import network_source, with_network_of
from launch.calibration.machine import CalibrationOptions, described, measure
from launch.calibration.network import NetworkSizes, joined, measure_network
from launch.cli import UsageError
from launch.cli.output_path import OutputPathError, require_folder, require_writable
from launch.cli.terminal_line import TerminalLine
from launch.job import versions
from launch.ranks.agreement import agree
from launch.ranks.rank_environment import (
    settings_of_environment,
    timeout_seconds,
    world_of_environment,
)
from launch.ranks.shutdown import run_rank
from launch.ranks.world import open_world
from launch.report.environment import describe_environment
from launch.target.calibrated import calibration_path, keep_calibration, machine_here
from spmd.errors import SpmdError
from spmd.machine.description import MachineDescription
from spmd.machine.reader import MachineError, read_machine, write_machine
from spmd.output_file import write_file

if TYPE_CHECKING:
    from collectives.communicator.mpi.communicator import MpiCommunicator

#: Sizes of the cubic products that are shown, with cached operands and results.
CUBES = (64, 256, 512)
#: Relative difference between rounds above which others have used the machine, or its speed has changed; the result may
#: describe the worse moment.
UNSTEADY = 0.25


class DisturbedError(SpmdError):
    """Measurement that cannot be true."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Measure matrix products, convolutions, memory, native loops, dispatch and exchange between two devices of "
        "this process, in half a minute, and write a description that later compilations on this kind of processor "
        "find. The network of an earlier calibration is kept. On ranks of several nodes (spmd launch), measure the "
        "network between them, in a few seconds, and add it to the description of one node. Run nothing else "
        "meanwhile. All ranks of a job must have the same description: they compare it before they compile."
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="F.json",
        help="write to this file instead; later compilations use it only if --machine names it",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print the description as one JSON object and nothing else",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    keep_objects()
    world = world_of_environment()
    if world is not None and world[1] > 1:
        as_rank = partial(_between_nodes, options)
        return run_rank(open_world(world[1], timeout_seconds(None)), as_rank)
    path = options.output or calibration_path()
    _require_writable(path, options.output is None)
    measuring = CalibrationOptions()
    start, line = time.perf_counter(), TerminalLine()
    count, begun = len(measuring.families()), itertools.count(1)
    found = measure(
        measuring, lambda family: line.show(f"measuring {family.name}, {next(begun)} of {count}")
    )
    line.clear()
    seconds = time.perf_counter() - start
    environment = describe_environment()
    cores = f"{environment['cores']} cores of {environment['cpu']}"
    machine, retained = _joined_as_before(described(cores, measuring, found.seconds))
    lines = [_table(machine), *retained, *_unsteady(found.spreads)]
    _keep(options, machine, lines, seconds)
    return 0


def _joined_as_before(machine: MachineDescription) -> tuple[MachineDescription, list[str]]:
    """Return the description with the network of an earlier calibration, which one process cannot measure, and notes
    about it.
    """
    try:
        earlier = machine_here()
    except MachineError as error:
        return machine, [f"  nothing of the earlier calibration is kept: {error}"]
    source = network_source(earlier)
    if not source:
        return machine, []
    note = (
        f"  kept from the earlier calibration: the network between nodes ({source}); to measure it again, calibrate on "
        "ranks of several nodes"
    )
    return with_network_of(machine, earlier), [note]


def _between_nodes(options: argparse.Namespace, world: MpiCommunicator) -> int:
    """Measure between nodes. Rank 0 has the description of one node, writes the result and reports it."""

    def setup() -> tuple[int, dict[str, str]]:
        devices = world.nodes.devices_of_each
        if devices is None:
            raise UsageError(
                "calibrate measures all cores of a node from one process: start it without a launcher, "
                "or on ranks of several nodes to measure the network between them"
            )
        if world.rank == 0:
            _require_writable(options.output or calibration_path(), options.output is None)
        return devices, {**versions(), **settings_of_environment()}

    devices = agree(world, setup)
    start = time.perf_counter()
    found = measure_network(world, devices, NetworkSizes())
    seconds = time.perf_counter() - start
    if world.rank == 0:
        machine = joined(machine_here(), found)
        _keep(options, machine, _exchange_lines(machine), seconds)
    world.barrier()
    return 0


def _keep(
    options: argparse.Namespace, machine: MachineDescription, lines: list[str], seconds: float
) -> None:
    """Write the description and say what it says. Raises DisturbedError if nobody could read it."""
    text = write_machine(machine)
    try:
        read_machine(text.encode(), "this measurement")
    except MachineError as error:
        raise DisturbedError(
            f"{error}: another process used the machine; nothing was written, calibrate again"
        ) from error
    _write(options.output, text)
    if options.json:
        print(text, end="")
        return
    for line in lines:
        print(line)
    print(f"{options.output or calibration_path()}: {machine}, measured in {seconds:.1f} s")
    if options.output is not None:
        print(
            f"to use it, compile with --machine {options.output}, or copy it to {calibration_path()}"
        )


def _require_writable(path: Path, makes_folder: bool) -> None:
    """Raise OutputPathError, before anything is measured, if the file cannot be written."""
    if makes_folder:
        require_folder(path.parent)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputPathError(
                f"{path.parent}: the folder cannot be created: {error.strerror or error}"
            ) from error
    require_writable(path)


def _write(output: Path | None, text: str) -> None:
    """Write the description to ``output``, or where compilations find it. Raises OutputFileError if there is no
    space.
    """
    if output is None:
        keep_calibration(text)
    else:
        write_file(output, text)


def _unsteady(spreads: Mapping[str, float]) -> list[str]:
    unsteady = [f"{name} {spread:.0%}" for name, spread in spreads.items() if spread > UNSTEADY]
    if not unsteady:
        return []
    reason = "another process ran, or the processor's speed changed; the best round counts"
    return [f"  the rounds differed much ({', '.join(unsteady)}): {reason}"]


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
        lines.append(
            f"  {one.kind} convolutions, {one.algorithm.value}: {rate:.0f} Gflop/s at most"
        )
    for level in machine.levels:
        lines.append(f"  {level.name}: {level.bandwidth / 1e9:.1f} GB/s")
    lines.append(
        f"  overhead: {machine.kernel_seconds * 1e6:.2f} us per kernel, {machine.row_seconds * 1e9:.1f} ns per row, "
        f"{machine.thunk_seconds * 1e6:.2f} us per thunk"
    )
    return "\n".join([*lines, *_exchange_lines(machine)])


def _exchange_lines(machine: MachineDescription) -> list[str]:
    return [
        f"  {way.name}: {way.bandwidth / 1e9:.3g} GB/s, {way.latency * 1e6:.1f} us"
        + (f", uses {way.busy:.0%} of a processor" if way.busy < 1 else "")
        for way in machine.exchanges
    ]
