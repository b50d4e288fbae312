"""Measure what each pass is worth: how much longer the predicted step takes without it, or how much more memory.

python -m tests.documents.pass_worth MODULE...      measure, and write the page of passes anew

A MODULE is one of those that `tests.documents.passes_page --measure` was given: it told which pass changes which. Of
each pass's modules some are compiled again without it, and both programs are simulated: passes for overlap on a
described cluster, the others on a described processor. What was measured is kept beside the other figures of the page.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from collectives.cost.roofline import RooflineEstimator
from collectives.simulate.result import Simulation
from collectives.simulate.simulate import SimulationOptions, simulate
from launch.options import CompileOptions
from launch.pipeline import stages
from spmd.errors import SpmdError
from spmd.hlo import HloModule
from spmd.machine.named import machine_named
from spmd.passes import pipeline
from spmd.passes.interface import PASSES, HloPass, PassResult
from tests.documents.passes_page import (
    DOCUMENT,
    FOR_OVERLAP,
    MEASURED,
    OVERLAPPING,
    document,
    is_among,
    module_at,
    name_of,
)

#: Modules of each pass that are compiled without it, drawn at random from those that it changes.
TRIED = 12
#: Seconds for compiling and simulating one of them; one that takes longer is not counted.
MOST_SECONDS = 20


@dataclass
class Worth:
    """The most that is lost in ``tried`` modules without a pass: the factors of predicted time and memory, and where.

    needed: the number of modules that cannot be compiled without it.
    """

    time: float = 1.0
    time_at: str = ""
    memory: float = 1.0
    memory_at: str = ""
    tried: int = 0
    needed: int = 0

    def add(self, before: Simulation, without: Simulation, module: str) -> None:
        self.tried += 1
        time = round(without.seconds / before.seconds, 3)
        memory = round(without.peak_bytes / max(before.peak_bytes, 1), 3)
        if time > self.time:
            self.time, self.time_at = time, module
        if memory > self.memory:
            self.memory, self.memory_at = memory, module


@contextmanager
def without(name: str) -> Iterator[None]:
    """Leave the pass ``name`` out of every pipeline."""
    applied = pipeline.apply

    def apply(step: HloPass, module: HloModule) -> PassResult:
        return PassResult(False) if step.name == name else applied(step, module)

    pipeline.apply = apply
    try:
        yield
    finally:
        pipeline.apply = applied


@contextmanager
def limited() -> Iterator[None]:
    """Raise TimeoutError after ``MOST_SECONDS``: programs that are not simplified may be far larger."""

    def stop(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(MOST_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)


def simulated(place: Path, options: CompileOptions) -> Simulation:
    """Compile the module at ``place``, and return its predicted step."""
    module, devices = module_at(place)
    *_, (_, compilation) = stages(module, devices, options)
    estimator = RooflineEstimator.of(compilation.module, options.machine, {})
    asked = SimulationOptions(busy=options.machine.busy)
    return simulate(compilation.module, [estimator], asked)


def measure(places: dict[str, Path], changed: dict[str, list[str]]) -> dict[str, Worth]:
    """Return what each pass is worth. ``changed``: the names of the modules that it changes."""
    here = CompileOptions(machine=machine_named())

    @cache
    def with_all(name: str, options: CompileOptions) -> Simulation:
        return simulated(places[name], options)

    found: dict[str, Worth] = {}
    for name in sorted(PASSES):
        options = OVERLAPPING if is_among(name, FOR_OVERLAP) else here
        known = [one for one in changed.get(name, ()) if one in places]
        chosen = random.Random(name).sample(known, min(TRIED, len(known)))
        worth = Worth()
        for one in sorted(chosen):
            try:
                with limited():
                    before = with_all(one, options)
                with limited(), without(name):
                    worth.add(before, simulated(places[one], options), one)
            except SpmdError:
                worth.needed += 1
            except TimeoutError:
                continue
        if chosen:
            found[name] = worth
            print(name, worth, file=sys.stderr, flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("modules", type=Path, nargs="+", metavar="MODULE")
    places = {name_of(place): place for place in parser.parse_args().modules}
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))
    changed = {name: row["changed"] for name, row in measured["passes"].items()}
    for name, worth in measure(places, changed).items():
        measured["passes"][name]["worth"] = asdict(worth)
    MEASURED.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    DOCUMENT.write_text(document(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
