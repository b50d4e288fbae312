"""Engine: the discrete-event simulation of devices that run their activities and wait for collectives.

A collective begins when all its members are ready. Kernels of a device affect no other device, so that only starts of
collectives, waits and the ends of loop trips are events.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from collectives.simulate.activities import Loop, Program, Series, Start, Wait, Work
from collectives.simulate.compute import Done
from collectives.simulate.device import Execution, Frame, SimulatedDevice, Total
from collectives.simulate.device_classes import DeviceClasses, Rendezvous
from collectives.simulate.events import EventQueue
from collectives.simulate.periods import Periods
from collectives.simulate.ports import Port, Transfer, begin, finish
from collectives.simulate.timeline import Row, Slice, Timeline
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class _Computed:
    """Event: ``device`` reaches its next activity. It is outdated if ``version`` is not the device's present one."""

    device: SimulatedDevice
    version: int


@dataclass(frozen=True, slots=True)
class _Over:
    """Event: ``transfer`` ends. It is outdated if ``version`` is not the transfer's present one."""

    execution: Execution
    transfer: Transfer
    version: int


@dataclass
class Engine:
    """One run of a simulation.

    busy: by exchange, the fraction of a device's processors that transfers occupy if they fully use it.
    series: by pace, seconds of each execution.
    extrapolated: skip trips of loops once they repeat; without effect if there are series.
    """

    program: Program
    device_classes: DeviceClasses
    busy: Mapping[str, float] = field(default_factory=dict)
    series: Sequence[Series] = ()
    extrapolated: bool = True
    timeline: Timeline = field(default_factory=Timeline)

    def __post_init__(self) -> None:
        self.devices = [
            SimulatedDevice(
                number,
                pace,
                [Frame(self.program.activities)],
                self.series[pace] if self.series else {},
            )
            for number, pace in enumerate(self.device_classes.paces)
        ]
        self._queue: EventQueue[_Computed | _Over] = EventQueue()
        self._executions: dict[tuple[int, int], dict[tuple[int, ...], Execution]] = {}
        self._of_transfer: dict[Transfer, Execution] = {}
        self._periods = Periods(self.devices, self._executions, self.timeline)

    def run(self, begins: Sequence[float] = ()) -> float:
        """Run every device to its end. Returns the seconds of the step. ``begins``: when the devices of each pace
        begin, if not at 0.
        """
        for device in self.devices:
            self._advance(device, begins[device.pace] if begins else 0.0)
        while self._queue:
            now, event = self._queue.pop()
            if isinstance(event, _Over):
                if event.version == event.transfer.version:
                    self._finish(event.execution, event.transfer, now)
            elif event.version == event.device.compute.version:
                self._computed(event.device, now)
        # All devices run one program in one order, so that no device waits forever.
        ends = [device.end for device in self.devices if device.end is not None]
        assert len(ends) == len(self.devices)
        return max(ends) + self.timeline.skipped

    # ---- one device
    def _advance(self, device: SimulatedDevice, now: float) -> None:
        """Begin the work of ``device`` up to its next event, at time ``now``."""
        work: list[tuple[str, float]] = []
        while True:
            activity = device.activity()
            if isinstance(activity, Work):
                work.append((activity.name, device.seconds_of(activity)))
                device.pass_activity()
            elif isinstance(activity, Loop):
                device.frames.append(Frame(activity.body, activity))
            else:
                break
        device.compute.begin(work, now)
        device.add(device.compute.left, Total.COMPUTE)
        device.add(-device.compute.left, Total.SLOWED)
        self._await(device)

    def _await(self, device: SimulatedDevice) -> None:
        """Queue the device's next event, at its present speed."""
        end = device.compute.end()
        if math.isfinite(end):
            self._queue.put(end, _Computed(device, device.compute.version))

    def _computed(self, device: SimulatedDevice, now: float) -> None:
        """Process the activity that ``device`` has reached: a start, a wait, or the end of a trip or the program."""
        if device.compute.todo:
            self._keep(device, device.compute.finish(now))
        activity = device.activity()
        if isinstance(activity, Start):
            device.pass_activity()
            self._start(device, activity.site, now)
        elif isinstance(activity, Wait):
            execution = device.begun[activity.site]
            if execution is not None and execution.over is None:
                device.stopped = now, device.meters(now)
                execution.waiting.append(device)
                return
            device.pass_activity()
            if execution is not None:
                self._account(device, execution, now, now)
        elif len(device.frames) == 1:
            device.end = now
            return
        else:
            self._end_trip(device, now)
        self._advance(device, now)

    def _end_trip(self, device: SimulatedDevice, now: float) -> None:
        """End a trip of the device's innermost loop, and leave the loop after the last trip."""
        frame = device.frames[-1]
        assert frame.loop is not None
        frame.index = 0
        frame.trip += 1
        if self.extrapolated and not self.series:
            self._periods.end_of_trip(device, now)
        if frame.trip >= frame.loop.trips:
            device.frames.pop()
            device.pass_activity()

    def _keep(self, device: SimulatedDevice, done: list[Done]) -> None:
        """Record kernels that ``device`` has executed."""
        for one in done:
            device.add(one.end - one.start, Total.SLOWED)
            self.timeline.add(Slice(device.number, Row.COMPUTE, one.name, one.start, one.end))

    def _set_speed(self, device: SimulatedDevice, now: float) -> None:
        """Set the speed that the transfers on the device's ports leave."""
        speed = 1.0 - device.lacks(self.busy)
        if speed != device.compute.speed:
            self._keep(device, device.compute.set_speed(speed, now))
            if device.stopped is None and device.end is None:
                self._await(device)

    # ---- collectives
    def _start(self, device: SimulatedDevice, site: int, now: float) -> None:
        """Record that ``device`` is ready for its next execution of a collective, which begins with its last member."""
        turn = device.turns.get(site, 0)
        device.turns[site] = turn + 1
        device.begun[site] = None
        for rendezvous in self.device_classes.rendezvous_of_classes[site][device.number]:
            execution = self._execution(site, turn, rendezvous)
            if device.number in rendezvous.numbers:
                device.begun[site] = execution
            execution.ready[device.number] = now
            execution.last = device.number
            if len(execution.ready) == len(rendezvous.members):
                self._begin(execution, now)

    def _execution(self, site: int, turn: int, rendezvous: Rendezvous) -> Execution:
        """Return the execution number ``turn`` of a collective, which is created on first use."""
        known = self._executions.setdefault((site, turn), {})
        if rendezvous.numbers not in known:
            known[rendezvous.numbers] = Execution(site, turn, rendezvous.numbers)
        return known[rendezvous.numbers]

    def _begin(self, execution: Execution, now: float) -> None:
        """Begin the transfer, as all members are ready. If members need different times, each has a transfer of its
        own.
        """
        seconds = {self._seconds(execution, self.devices[number]) for number in execution.numbers}
        if len(seconds) == 1:
            self._transfer(execution, now)
            return
        self._forget(execution)
        for number in execution.numbers:
            device = self.devices[number]
            own = replace(execution, numbers=(number,), waiting=[])
            self._executions.setdefault((own.site, own.turn), {})[own.numbers] = own
            device.begun[own.site] = own
            own.waiting += [one for one in execution.waiting if one is device]
            self._transfer(own, now)

    def _transfer(self, execution: Execution, now: float) -> None:
        """Begin the transfer of ``execution`` on the ports of its devices."""
        devices = [self.devices[number] for number in execution.numbers]
        time = self.program.sites[execution.site].times[devices[0].pace]
        seconds = self._seconds(execution, devices[0])
        uses: dict[Port, float] = {}
        for link in time.links if time.seconds > 0.0 else ():
            for device in devices:
                port = device.port(link.exchange)
                uses[port] = min(uses.get(port, 0.0) + link.seconds / time.seconds, 1.0)
        uses = {port: use for port, use in uses.items() if use > 0.0}
        execution.transfer = Transfer(execution.site, uses, now, seconds)
        self._of_transfer[execution.transfer] = execution
        for device in devices:
            self._count_in_flight(device, 1, now)
        self._expect(begin(execution.transfer, now), execution, now)

    def _seconds(self, execution: Execution, device: SimulatedDevice) -> float:
        """Return the seconds of the execution for ``device`` on free links."""
        site = self.program.sites[execution.site]
        return device.execution_of(site.name, execution.turn, site.times[device.pace].seconds)

    def _finish(self, execution: Execution, transfer: Transfer, now: float) -> None:
        """End the transfer of ``execution``, and resume the devices that wait for it."""
        execution.over = now
        del self._of_transfer[transfer]
        self._forget(execution)
        self._expect(finish(transfer, now), execution, now)
        links = tuple(dict.fromkeys(port.exchange for port in transfer.uses))
        name = self.program.sites[execution.site].name
        for number in execution.numbers:
            self._count_in_flight(self.devices[number], -1, now)
            self.timeline.add(Slice(number, Row.COLLECTIVE, name, transfer.begin, now, links))
        for device in execution.waiting:
            self._resume(device, execution, now)

    def _expect(self, changed: list[Transfer], because: Execution, now: float) -> None:
        """Update the ends of the ``changed`` transfers, whose rates changed when ``because`` began or ended, and the
        speeds of their devices.
        """
        numbers = dict.fromkeys(because.numbers)
        for transfer in changed:
            execution = self._of_transfer[transfer]
            numbers.update(dict.fromkeys(execution.numbers))
            self._queue.put(transfer.end(), _Over(execution, transfer, transfer.version))
        if self.busy:
            for number in numbers:
                self._set_speed(self.devices[number], now)

    def _forget(self, execution: Execution) -> None:
        """Remove ``execution`` from the table of executions that are not over."""
        known = self._executions[execution.site, execution.turn]
        del known[execution.numbers]
        if not known:
            del self._executions[execution.site, execution.turn]

    def _count_in_flight(self, device: SimulatedDevice, more: int, now: float) -> None:
        device.in_flight += more
        device.moving.set(float(device.in_flight > 0), now)

    # ---- waiting
    def _resume(self, device: SimulatedDevice, execution: Execution, now: float) -> None:
        """End the wait of ``device`` for ``execution``."""
        assert device.stopped is not None
        since, before = device.stopped
        device.stopped = None
        for name, busy in device.meters(now).items():
            device.add(busy - before.get(name, 0.0), Total.WHILE_EXPOSED, name)
        self._account(device, execution, since, now)
        device.pass_activity()
        self._advance(device, now)

    def _account(
        self, device: SimulatedDevice, execution: Execution, since: float, now: float
    ) -> None:
        """Record why ``device`` waited for ``execution`` from ``since`` to ``now``."""
        site, transfer = execution.site, execution.transfer
        assert transfer is not None
        assert execution.over is not None
        waited = now - since
        device.add(1.0, Total.EXECUTIONS, site)
        device.add(execution.over - transfer.begin, Total.MOVING, site)
        if waited <= 0.0:
            return
        device.add(waited, Total.EXPOSED, site)
        late = min(waited, transfer.begin - execution.ready[device.number])
        if late > 0.0:
            device.add(late, Total.LATE, site, execution.last)
        lost = sum(transfer.delays.values())
        if lost > 0.0:
            part = min(waited - late, lost) / lost
            for (exchange, other), seconds in transfer.delays.items():
                device.add(part * seconds, Total.CONTENDED, site, exchange, other)
        name = self.program.sites[site].name
        self.timeline.add(Slice(device.number, Row.WAIT, name, since, now))
