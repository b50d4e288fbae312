"""Report where the time of `spmd opt --until scheduled` goes, by stage and by pass, as programs grow.

    python -m benchmarks.pass_scale [FILE ...] [--layers 14,28,56,140] [--mesh 2x2x2] [--until scheduled] [--passes 12]
                                    [--shapes wide:6000,chain:12000] [--json FILE]

For each FILE (default: the modules of ../shared/public), and for a GPT training step with so many unrolled layers: CPU
seconds to read its text, to partition it, to simplify and to schedule what each device runs; then the passes that took
longest, with how often they ran and changed the module. And for programs that are all one shape, in which every second
instruction is to be simplified: so many outputs (wide), or links that all read one parameter (chain). One core, one
process for each. Exits 1 where a module of fewer than 50,000 instructions takes more than 60 s in all.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.gpt_step import GptSizes, gpt_step
from launch.options import CompileOptions
from launch.pipeline import stages
from spmd.passes.pipeline import Application
from spmd.text.parser import parse_module

PUBLIC = Path(__file__).parents[2] / "shared" / "public"
STAGES = ("read", "partitioned", "optimized", "scheduled")
MOST_SECONDS, MOST_INSTRUCTIONS = 60.0, 50_000


@dataclass
class Pass:
    seconds: float = 0.0
    runs: int = 0
    changed: int = 0


@dataclass
class Figures:
    """Seconds are CPU time; ``instructions`` after each stage."""

    name: str
    seconds: dict[str, float] = field(default_factory=dict)
    instructions: dict[str, int] = field(default_factory=dict)
    passes: dict[str, Pass] = field(default_factory=dict)

    @property
    def total(self) -> float:
        return sum(self.seconds.values())

    @property
    def largest(self) -> int:
        return max(self.instructions.values())

    def __str__(self) -> str:
        done = [s for s in STAGES if s in self.seconds]
        cells = [f"{self.instructions[s]:9,d} {self.seconds[s]:8.2f}" for s in done]
        cells += [f"{'':18}"] * (len(STAGES) - len(done))
        each = 1e6 * self.total / self.largest
        return f"{self.name[:28]:28} {' '.join(cells)} {self.total:8.2f} {each:8.0f}"


HEADER = f"{'module':28} " + " ".join(f"{s:>18}" for s in STAGES) + f" {'total':>8} {'us/ins':>8}"


class Clock:
    """CPU seconds since it was last read."""

    def __init__(self) -> None:
        self._last = time.process_time()

    def lap(self) -> float:
        now = time.process_time()
        passed, self._last = now - self._last, now
        return passed


def measure(name: str, text: str, devices: int | None, until: str) -> Figures:
    figures = Figures(name)
    clock = Clock()

    def after(done: Application) -> None:
        row = figures.passes.setdefault(done.step.name, Pass())
        row.seconds += done.seconds
        row.runs += 1
        row.changed += done.changed

    module = parse_module(text, name)
    figures.seconds["read"] = clock.lap()
    figures.instructions["read"] = module.instruction_count
    for stage, compilation in stages(module, devices, CompileOptions()):
        spent = clock.lap()
        compilation.after_pass = after
        if stage != "logical":
            figures.seconds[stage] = spent
            figures.instructions[stage] = compilation.module.instruction_count
        if stage == until:
            break
    return figures


def wide(outputs: int) -> Iterator[str]:
    """A tuple of so many sums with nothing, each negated twice."""
    yield from ("zero = f32[] constant(0)", "zeros = f32[4] broadcast(zero), dimensions={}")
    for i in range(outputs):
        yield f"parameter.{i} = f32[4] parameter({i})"
        yield f"sum.{i} = f32[4] add(parameter.{i}, zeros)"
        yield f"negate.{i} = f32[4] negate(sum.{i})"
        yield f"again.{i} = f32[4] negate(negate.{i})"
    shape, results = (
        ", ".join(["f32[4]"] * outputs),
        ", ".join(f"again.{i}" for i in range(outputs)),
    )
    yield f"ROOT results = ({shape}) tuple({results})"


def chain(links: int) -> Iterator[str]:
    """A sum with nothing, put into a tuple and taken out, multiplied by the one factor, and so on."""
    yield from ("zero = f32[] constant(0)", "zeros = f32[4] broadcast(zero), dimensions={}")
    yield from ("product.0 = f32[4] parameter(0)", "factor = f32[4] parameter(1)")
    for i in range(links):
        yield f"sum.{i} = f32[4] add(product.{i}, zeros)"
        yield f"pair.{i} = (f32[4], f32[4]) tuple(sum.{i}, factor)"
        yield f"first.{i} = f32[4] get-tuple-element(pair.{i}), index=0"
        yield f"product.{i + 1} = f32[4] multiply(first.{i}, factor)"
    yield f"ROOT last = f32[4] negate(product.{links})"


SHAPES = {"wide": wide, "chain": chain}


def text_of(source: str, mesh: tuple[int, int, int]) -> tuple[str, str, int | None]:
    """Name, text and devices of a file, of a GPT step with so many layers, or of a program of one shape."""
    kind, _, size = source.partition(":")
    if kind in SHAPES and size.isdigit():
        lines = "\n".join(SHAPES[kind](int(size)))
        return f"{kind} {size}", f"HloModule {kind}, num_partitions=2\nENTRY e {{\n{lines}\n}}\n", 2
    if not source.isdigit():
        path = Path(source)
        return path.stem, path.read_text(encoding="utf-8"), None
    module = gpt_step(GptSizes.for_mesh(mesh, int(source)))
    return f"gpt {source} layers", str(module), module.num_partitions


def in_own_process(source: str, options: argparse.Namespace) -> Figures:
    command = [sys.executable, __file__, "--one", source, "--mesh", options.mesh]
    command += ["--until", options.until]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    if done.returncode:
        raise RuntimeError(done.stderr)
    found = json.loads(done.stdout)
    found["passes"] = {name: Pass(**row) for name, row in found["passes"].items()}
    return Figures(**found)


def report(figures: Figures, most: int) -> None:
    print(figures)
    slowest = sorted(figures.passes.items(), key=lambda item: -item[1].seconds)
    for name, row in slowest[:most]:
        print(f"    {name:44} {row.seconds:8.3f} s  {row.runs} runs, {row.changed} changed")
    sys.stdout.flush()


def parse_mesh(text: str) -> tuple[int, int, int]:
    data, fsdp, model = map(int, text.split("x"))
    return data, fsdp, model


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", default=sorted(map(str, PUBLIC.glob("*.hlo"))))
    parser.add_argument("--layers", default="14,28,56,140", help="depths of the GPT step")
    parser.add_argument("--mesh", default="2x2x2", help="its devices: data x fsdp x model")
    parser.add_argument("--shapes", default="wide:6000,chain:12000", help="programs of one shape")
    parser.add_argument("--until", choices=STAGES[1:], default="scheduled")
    parser.add_argument("--passes", type=int, default=12, help="how many passes to print")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        name, text, devices = text_of(options.one, parse_mesh(options.mesh))
        print(json.dumps(asdict(measure(name, text, devices, options.until))))
        return 0
    print(HEADER)
    generated = f"{options.layers},{options.shapes}".split(",")
    sources = [*options.files, *filter(None, generated)]
    rows: list[Figures] = []
    for source in sources:
        rows.append(in_own_process(source, options))
        report(rows[-1], options.passes)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    slow = [r for r in rows if r.total > MOST_SECONDS and r.largest < MOST_INSTRUCTIONS]
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
