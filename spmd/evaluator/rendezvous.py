"""Lock-step execution of several devices: each is a generator that yields a Rendezvous where it needs others.

A device runs until it waits or ends. A rendezvous is complete when every member waits at the same instruction for the
same group. No other order is assumed, so devices may be at different trips of a loop, as long as the groups agree. If
no device can continue, the error names each waiting device and its instruction.
"""

from __future__ import annotations

from collections.abc import Mapping

from spmd.errors import CollectiveTimeoutError
from spmd.evaluator.device import Rendezvous, Steps
from spmd.evaluator.value import Value


class _Lockstep:
    """State of one run: devices by id, the meetings they wait for, the values of finished devices."""

    def __init__(self, devices: Mapping[int, Steps]) -> None:
        self.devices = devices
        self.waiting: dict[int, Rendezvous] = {}
        self.done: dict[int, Value] = {}

    def advance(self, device: int, result: Value | None) -> None:
        """Run ``device`` to its next rendezvous or to its end; ``result`` is the result of its last rendezvous."""
        steps = self.devices[device]
        try:
            self.waiting[device] = next(steps) if result is None else steps.send(result)
        except StopIteration as stop:
            self.done[device] = stop.value

    def ready(self, device: int) -> Rendezvous | None:
        """Return the rendezvous of ``device`` if all its members have arrived, else None."""
        rendezvous = self.waiting.get(device)
        if rendezvous is None or (rendezvous.is_ready is not None and not rendezvous.is_ready()):
            return None
        return rendezvous if all(self._is_at(m, rendezvous) for m in rendezvous.members) else None

    def complete(self, rendezvous: Rendezvous) -> None:
        """Combine the payloads of all members and let each continue with its result."""
        payloads = [self.waiting.pop(member).payload for member in rendezvous.members]
        for member, result in zip(rendezvous.members, rendezvous.combine(payloads), strict=True):
            self.advance(member, result)

    def run(self) -> dict[int, Value]:
        for device in self.devices:
            self.advance(device, None)
        while len(self.done) < len(self.devices):
            progress = False
            for device in self.devices:
                rendezvous = self.ready(device)
                if rendezvous is not None:
                    self.complete(rendezvous)
                    progress = True
            if not progress:
                raise CollectiveTimeoutError(self.deadlock())
        return {device: self.done[device] for device in self.devices}

    def deadlock(self) -> str:
        lines = [
            f"  device {device} waits at {rendezvous.instruction.name} ({rendezvous.instruction.opcode})"
            f" for {self._missing(rendezvous)}"
            for device, rendezvous in sorted(self.waiting.items())
        ]
        if self.done:
            lines.append(f"  done: {', '.join(map(str, sorted(self.done)))}")
        return "collective groups that never meet:\n" + "\n".join(lines)

    def _missing(self, rendezvous: Rendezvous) -> str:
        absent = [str(m) for m in rendezvous.members if not self._is_at(m, rendezvous)]
        return f"devices {', '.join(absent)}" if absent else "a message"

    def _is_at(self, device: int, rendezvous: Rendezvous) -> bool:
        other = self.waiting.get(device)
        return (
            other is not None
            and other.instruction is rendezvous.instruction
            and other.members == rendezvous.members
        )


def run_in_lockstep(devices: Mapping[int, Steps]) -> dict[int, Value]:
    """Run every device to its end. Returns the values of all, by device.

    Raises CollectiveTimeoutError if the remaining devices wait for groups that never meet.
    """
    return _Lockstep(devices).run()
