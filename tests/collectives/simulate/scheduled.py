"""Scheduled modules written as a few words, with the seconds of each instruction: what simulations are tested on.

work("a", 3.0)      a kernel of 3 s
ring("g", 4.0)      an all-gather of 4 s among all devices, blocking
begin("g", 4.0)     the same in two halves ...
end("g")            ... whose second half stands here
loop("l", 80, ...)  a while loop of 80 trips of these
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from collectives.cost.estimator import CollectiveTime, LinkUse
from spmd.hlo import HloInstruction, HloModule
from spmd.text.parser import parse_module


@dataclass
class Line:
    """One instruction of a scheduled module; ``inside`` of a loop."""

    form: str
    name: str
    seconds: float = 0.0
    attrs: str = ""
    links: tuple[LinkUse, ...] = ()
    trips: int = 0
    inside: tuple[Line, ...] = ()


@dataclass
class TableEstimator:
    """An Estimator that knows seconds by name. scale: of all kernels."""

    seconds: dict[str, float]
    times: dict[str, CollectiveTime]
    scale: float = 1.0

    def compute(self, instruction: HloInstruction) -> float:
        return self.scale * self.seconds.get(instruction.name, 0.0)

    def host_copy(self, instruction: HloInstruction) -> CollectiveTime | None:
        return None

    def collective(self, instruction: HloInstruction) -> CollectiveTime:
        return self.times[instruction.name]


@dataclass
class Scheduled:
    module: HloModule
    estimator: TableEstimator


def work(name: str, seconds: float) -> Line:
    return Line("work", name, seconds)


def one_link(seconds: float, exchange: str = "wire", use: float = 1.0) -> tuple[LinkUse, ...]:
    return (LinkUse(exchange, 1e9 * seconds, use * seconds),)


def ring(name: str, seconds: float, groups: str = "", exchange: str = "wire") -> Line:
    return Line("ring", name, seconds, groups, one_link(seconds, exchange))


def begin(
    name: str, seconds: float, groups: str = "", exchange: str = "wire", use: float = 1.0
) -> Line:
    return Line("begin", name, seconds, groups, one_link(seconds, exchange, use))


def end(name: str) -> Line:
    return Line("end", name)


def permute(name: str, seconds: float, pairs: str) -> Line:
    return Line("permute", name, seconds, pairs, one_link(seconds))


def loop(name: str, trips: int, *inside: Line) -> Line:
    return Line("loop", name, trips=trips, inside=inside)


def scheduled(lines: Iterable[Line], devices: int = 2) -> Scheduled:
    """A module whose instructions all read the one before them, unless a collective is between its halves."""
    writer = _Writer(devices)
    writer.computation("ENTRY main", tuple(lines), "f32[8] parameter(0)")
    text = f"HloModule made, is_scheduled=true, num_partitions={devices}\n{writer.text()}"
    return Scheduled(parse_module(text), TableEstimator(writer.seconds, writer.times))


@dataclass
class _Writer:
    devices: int
    seconds: dict[str, float] = field(default_factory=dict)
    times: dict[str, CollectiveTime] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)
    channels: int = 0

    def text(self) -> str:
        return "\n".join(self.done)

    def computation(self, head: str, lines: Sequence[Line], parameter: str) -> None:
        name = head.split()[-1]
        body = [f"p.{name} = {parameter}"]
        last = self._chain(body, lines, f"p.{name}")
        body.append(f"ROOT r.{name} = f32[8] copy({last})")
        self.done.append(f"{head} {{\n  " + "\n  ".join(body) + "\n}")

    def _chain(self, body: list[str], lines: Sequence[Line], last: str) -> str:
        """Write ``lines``, each of which reads what the one before it made; returns what the last one makes."""
        for line in lines:
            body += self._instruction(line, last)
            if line.form != "begin":
                last = body[-1].split(" = ")[0]
        return last

    def _instruction(self, line: Line, last: str) -> list[str]:
        self.seconds[line.name] = line.seconds
        if line.form == "work":
            return [f"{line.name} = f32[8] negate({last})"]
        if line.form == "end":
            return [f"{line.name}.done = f32[8] all-reduce-done({line.name})"]
        if line.form == "loop":
            return self._loop(line, last)
        self.seconds[line.name] = 0.0
        self.times[line.name] = CollectiveTime(line.seconds, "ring", line.links)
        self.channels += 1
        if line.form == "permute":
            attrs = f"source_target_pairs={{{line.attrs}}}, channel_id={self.channels}"
            return [f"{line.name} = f32[8] collective-permute({last}), {attrs}"]
        groups = line.attrs or "{" + ",".join(map(str, range(self.devices))) + "}"
        opcode = "all-reduce-start" if line.form == "begin" else "all-reduce"
        self._reducer()
        attrs = (
            f"channel_id={self.channels}, replica_groups={{{groups}}}, use_global_device_ids=true"
        )
        return [f"{line.name} = f32[8] {opcode}({last}), {attrs}, to_apply=sum"]

    def _reducer(self) -> None:
        text = "sum {\n  x = f32[] parameter(0)\n  y = f32[] parameter(1)\n  ROOT added = f32[] add(x, y)\n}"
        if text not in self.done:
            self.done.insert(0, text)

    def _loop(self, line: Line, last: str) -> list[str]:
        name = line.name
        self._body(name, line.inside)
        self.done.append(
            f"cond.{name} {{\n  c.{name} = (s32[], f32[8]) parameter(0)\n"
            f"  i.{name} = s32[] get-tuple-element(c.{name}), index=0\n"
            f"  n.{name} = s32[] constant({line.trips})\n"
            f"  ROOT less.{name} = pred[] compare(i.{name}, n.{name}), direction=LT\n}}"
        )
        return [
            f"zero.{name} = s32[] constant(0)",
            f"t.{name} = (s32[], f32[8]) tuple(zero.{name}, {last})",
            f"{name} = (s32[], f32[8]) while(t.{name}), condition=cond.{name}, body=body.{name}",
            f"g.{name} = f32[8] get-tuple-element({name}), index=1",
        ]

    def _body(self, name: str, lines: Sequence[Line]) -> None:
        body = [
            f"b.{name} = (s32[], f32[8]) parameter(0)",
            f"k.{name} = s32[] get-tuple-element(b.{name}), index=0",
            f"one.{name} = s32[] constant(1)",
            f"next.{name} = s32[] add(k.{name}, one.{name})",
            f"x.{name} = f32[8] get-tuple-element(b.{name}), index=1",
        ]
        last = self._chain(body, lines, f"x.{name}")
        body.append(f"ROOT out.{name} = (s32[], f32[8]) tuple(next.{name}, {last})")
        self.done.append(f"body.{name} {{\n  " + "\n  ".join(body) + "\n}")
