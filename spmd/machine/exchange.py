"""Exchange: a link between devices of a machine, and the protocols of the library that uses it."""

from __future__ import annotations

from dataclasses import replace

from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Protocol:
    """A protocol of a collective library on one exchange, which determines latencies and bandwidth.

    start: seconds of a collective of no bytes and no steps.
    ring, tree: seconds of one step of a ring or tree.
    attained, tree_attained: fraction of the exchange's attained bandwidth that rings or trees reach.
    """

    name: str
    start: float
    ring: float
    tree: float
    attained: float
    tree_attained: float


@dataclass(frozen=True, slots=True)
class Multicast:
    """Reductions and multicasts in a switch (NVLink SHARP).

    bandwidth: bytes per second at which a port would have to send if a ring were to take as long.
    latency: seconds of an all-reduce of no bytes.
    """

    bandwidth: float
    latency: float


@dataclass(frozen=True, slots=True)
class Exchange:
    """A link between devices.

    devices: largest number of devices that it joins, in groups of consecutive ids.
    bandwidth: bytes per second that one port sends and receives at the same time, of data in the nearest level.
    latency: seconds from a start to the first byte.
    ports: number of ports that one group of the next narrower exchange shares (a node's network interfaces); 0 if each
      device has its own.
    attained: fraction of ``bandwidth`` that collectives reach.
    busy: fraction of a device's processors that is not available for computing while bytes move; fractions of exchanges
      in use at the same time add up.
    uncached_slowdown: of operands and results from outer levels, relative to that of a copy.
    protocols: those of the collective library, which uses the fastest one for each collective; if there are none, each
      step takes ``latency``. All exchanges of a machine have protocols of the same names.
    multicast: what the exchange's switches do in all-reduces of all its devices; None: nothing.
    source: where the numbers come from.
    """

    name: str
    devices: int
    bandwidth: float
    latency: float
    uncached_slowdown: float = 0.0
    ports: int = 0
    attained: float = 1.0
    busy: float = 1.0
    protocols: tuple[Protocol, ...] = ()
    multicast: Multicast | None = None
    source: str = ""

    def seconds(self, sent: float) -> float:
        """Return the seconds until ``sent`` bytes of each device have arrived."""
        return self.latency + sent / self.bandwidth

    def times(self, factor: float) -> Exchange:
        """Return the exchange with ``factor`` times the bandwidth, and the same latencies."""
        multicast = self.multicast
        if multicast is not None:
            multicast = replace(multicast, bandwidth=multicast.bandwidth * factor)
        return replace(self, bandwidth=self.bandwidth * factor, multicast=multicast)
