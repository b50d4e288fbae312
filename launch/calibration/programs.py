"""Calibration of costs other than kernels: dispatch of thunks, and collectives between two devices of this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from launch.calibration.memory import Arena
from launch.calibration.probes import OfCores, Probe, Seconds
from launch.calibration.timing import Samples
from launch.collective_groups import COLLECTIVE_GROUPS
from launch.options import CompileOptions
from launch.pipeline import compile_module
from runtime.cpu.prediction.work import TIMED_BYTES
from runtime.executable import Executable
from spmd.lazy_dataclass import dataclass
from spmd.machine.bounds import MOST_SLOWDOWN
from spmd.machine.description import MemoryLevel, byte_seconds
from spmd.machine.exchange import Exchange
from spmd.machine.fit import nonnegative_fit
from spmd.text.parser import parse_module

#: Largest number of devices of the described node. It may exceed the number of cores, which devices then share.
NODE_DEVICES = 64
#: Fewest steps that are timed in a round.
LEAST_STEPS = 10
#: Operations of successive thunks, which have different code. Thunks with equal code all have the first one.
_OPCODES = ("add", "multiply", "maximum", "subtract", "minimum", "divide")


@dataclass(frozen=True)
class ProgramSizes:
    """Sizes of the measured programs.

    thunks: numbers of thunks of two programs; the difference of their times gives the time of a thunk.
    collectives: numbers of collectives of two programs; the difference of their times gives the time of a collective.
    elements: numbers of f32 elements of the all-reduces.
    budget: approximate seconds of one round of a program.
    """

    thunks: tuple[int, int] = (20, 220)
    collectives: tuple[int, int] = (1, 17)
    elements: tuple[int, ...] = (1 << 8, 1 << 16, 1 << 18, 1 << 20, 1 << 22)
    budget: float = 0.02


@dataclass(frozen=True)
class StepProbe(Probe):
    """Probe of the elapsed time of a step of the program ``text`` on ``devices`` devices of this process."""

    text: str
    devices: int

    def compiled(self) -> Executable:
        """Compile the program without fusion and without the passes for collectives, which would combine them."""
        options = CompileOptions(partitioned=True, fusion=False, without=tuple(COLLECTIVE_GROUPS))
        return compile_module(parse_module(self.text), self.devices, options)

    def ready(self, arena: Arena) -> Callable[[], OfCores]:
        """Compile and load the program, which allocates its own memory. Returns a function that times one round."""
        executable = self.compiled()
        inputs = executable.inputs
        state = executable.put([np.ones(argument.shape.dims, np.float32) for argument in inputs])
        return partial(self._round, partial(executable.run, state))

    def _round(self, step: Callable[[], object]) -> OfCores:
        end = time.perf_counter() + self.budget
        seconds: list[float] = []
        while len(seconds) < LEAST_STEPS or time.perf_counter() < end:
            start = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - start)
        return (Samples.of(seconds),)


def dispatch_probes(sizes: ProgramSizes) -> tuple[StepProbe, ...]:
    """Return the probes from which ``dispatch_seconds`` computes the time of a thunk."""
    return (*_chains(_OPCODES[:1], sizes), *_chains(_OPCODES, sizes))


def exchange_probes(sizes: ProgramSizes) -> tuple[StepProbe, ...]:
    """Return the probes from which ``exchange`` computes the exchange between two devices."""
    return tuple(probe for count in sizes.elements for probe in _all_reduces(count, sizes))


def dispatch_seconds(sizes: ProgramSizes, seconds: Seconds) -> tuple[float, float]:
    """Return the seconds of a thunk whose code has just run, and the additional seconds of a thunk with other code."""
    uniform, unlike = (
        _added(_chains(opcodes, sizes), sizes.thunks, seconds)
        for opcodes in (_OPCODES[:1], _OPCODES)
    )
    return uniform, max(unlike - uniform, 0.0)


def exchange(sizes: ProgramSizes, levels: tuple[MemoryLevel, ...], seconds: Seconds) -> Exchange:
    """Return the exchange between two devices of this process, from the times of all-reduces.

    Each device reads as many bytes as it writes. Further devices of a node share the memory, so the same exchange
    describes them. levels: bandwidths of copies by working set. seconds: times of ``exchange_probes``.
    """
    cached, parts, each = byte_seconds(levels, TIMED_BYTES), [], []
    for count in sizes.elements:
        sent = 4.0 * count
        touched = 2 * sent
        parts.append((1.0, sent, touched * max(byte_seconds(levels, touched) - cached, 0.0)))
        each.append(_added(_all_reduces(count, sizes), sizes.collectives, seconds))
    latency, byte, uncached = nonnegative_fit(parts, each)
    return Exchange(
        "devices of one process",
        NODE_DEVICES,
        1.0 / max(byte, 1e-15),
        latency,
        min(uncached, MOST_SLOWDOWN),
    )


def _added(probes: Sequence[StepProbe], counts: tuple[int, int], seconds: Seconds) -> float:
    """Return the seconds that one more thunk or collective adds to a step.

    probes: programs with ``counts`` thunks or collectives.
    """
    few, many = (seconds[probe] for probe in probes)
    added = (many - few) / (counts[1] - counts[0])
    # A difference that is not positive was disturbed. The mean of the longer program is then an upper bound.
    return added if added > 0 else many / counts[1]


def _chains(opcodes: tuple[str, ...], sizes: ProgramSizes) -> tuple[StepProbe, ...]:
    """Return the probes of two chains of thunks, the shorter one first."""
    return tuple(StepProbe(sizes.budget, _chain(opcodes, n), 1) for n in sizes.thunks)


def _all_reduces(count: int, sizes: ProgramSizes) -> tuple[StepProbe, ...]:
    """Return the probes of two chains of all-reduces, the shorter one first."""
    return tuple(StepProbe(sizes.budget, _all_reduce_chain(count, n), 2) for n in sizes.collectives)


def _chain(opcodes: tuple[str, ...], length: int) -> str:
    """Return the HLO text of a chain of ``length`` operations on short rows. ``opcodes`` are repeated in turn."""
    names = ["x", *(f"v{n}" for n in range(length))]
    lines = [
        f"  {'ROOT ' if n == length - 1 else ''}v{n} = f32[16] "
        f"{opcodes[n % len(opcodes)]}({names[n]}, y)"
        for n in range(length)
    ]
    parameters = ["  x = f32[16] parameter(0)", "  y = f32[16] parameter(1)"]
    return "\n".join(["HloModule chain", "ENTRY main {", *parameters, *lines, "}"])


def _all_reduce_chain(count: int, length: int) -> str:
    """Return the HLO text of a chain of ``length`` all-reduces of ``count`` elements between two replicas."""
    lines = [
        f"  {'ROOT ' if n == length - 1 else ''}r{n} = f32[{count}] "
        f"all-reduce({f'r{n - 1}' if n else 'x'}), replica_groups={{}}, to_apply=sum"
        for n in range(length)
    ]
    return "\n".join(
        [
            "HloModule exchange, replica_count=2",
            "sum {",
            "  x = f32[] parameter(0)",
            "  y = f32[] parameter(1)",
            "  ROOT sum = f32[] add(x, y)",
            "}",
            "ENTRY main {",
            f"  x = f32[{count}] parameter(0)",
            *lines,
            "}",
        ]
    )
