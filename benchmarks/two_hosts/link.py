"""The link between two hosts: devices on both, shaped to a rate and, on request, delayed."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from benchmarks.two_hosts.commands import NotPermittedError, attempt, command
from benchmarks.two_hosts.delay_line import delay_line
from benchmarks.two_hosts.namespaces import Host

#: The name of the link's device on each host; the hosts have different namespaces.
DEVICE = "link0"
#: Its place in /proc/net/dev.
_SENT_BYTES = 8

#: A timer for each millisecond's packets: more of them would cost the hosts a good part of a core in a virtual machine.
_LEAST_BURST, _BURST_SECONDS = 1 << 15, 1e-3
_LARGEST_PACKET = 1 << 16
_UP_SECONDS = 5.0

#: TCP settings of each host, for a network that serves one cluster alone. Pacing, with a timer per packet, is off.
#: Sockets take some milliseconds of the link's bytes, so that ranks that compute need not look at them all the time.
_TCP = {
    "tcp_congestion_control": "reno",
    "tcp_slow_start_after_idle": "0",
    "tcp_rmem": "4096 4194304 16777216",
    "tcp_wmem": "4096 4194304 4194304",
}

_BITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass(frozen=True)
class LinkShape:
    """rate: bits per second each way. delay: seconds that every packet is under way, each way."""

    rate: float
    delay: float = 0.0

    @property
    def burst(self) -> int:
        """Bytes that may pass at once after a pause, where the kernel keeps the rate: what it sends by one timer."""
        return max(_LEAST_BURST, round(_BURST_SECONDS * self.rate / 8))

    def __str__(self) -> str:
        return f"{self.rate / 1e9:g} Gbit/s, {1e3 * self.delay:g} ms each way"


def rate_of(text: str) -> float:
    """An argparse type: bits per second of ``1gbit``, ``250mbit``."""
    rate = _quantity(text, _BITS)
    if rate <= 0.0:
        raise argparse.ArgumentTypeError(f"{text!r} is no rate above zero")
    return rate


def delay_of(text: str) -> float:
    """An argparse type: seconds of ``0.2ms``, ``50us``."""
    return _quantity(text, _SECONDS)


def _quantity(text: str, units: dict[str, float]) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([a-z]+)", text)
    if found is None or found[2] not in units:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no number with one of the units {', '.join(units)}"
        )
    return float(found[1]) * units[found[2]]


@dataclass(frozen=True)
class LinkEnd:
    """One host's side of the link."""

    host: Host
    address: str

    def sent_bytes(self) -> int:
        """Return the bytes sent since the link was made, headers included."""
        for line in command(*self.host.inside("cat", "/proc/net/dev")).splitlines():
            name, _, counts = line.partition(":")
            if name.strip() == DEVICE:
                return int(counts.split()[_SENT_BYTES])
        raise AssertionError(f"{self.host.namespace} has lost its {DEVICE}")


@contextmanager
def link(ends: tuple[Host, Host], shape: LinkShape) -> Iterator[tuple[LinkEnd, LinkEnd]]:
    """The two hosts joined by it."""
    by_kernel = shape.delay == 0.0 or _has_netem(ends[0])
    with ExitStack() as stack:
        if by_kernel:
            _make_veth(ends)
        else:
            stack.enter_context(delay_line(ends, DEVICE, shape.rate, shape.delay))
        found = tuple(LinkEnd(host, f"10.0.0.{n + 1}") for n, host in enumerate(ends))
        for end in found:
            if by_kernel:
                _shape(end.host, shape)
            _set_up(end, shape)
        for end in found:
            _wait_until_up(end.host)
        yield found[0], found[1]


def _make_veth(ends: tuple[Host, Host]) -> None:
    one, other = (("name", DEVICE, "netns", host.namespace) for host in ends)
    command("ip", "link", "add", *one, "type", "veth", "peer", *other)


def _set_up(end: LinkEnd, shape: LinkShape) -> None:
    space = ("ip", "-n", end.host.namespace)
    command(*space, "address", "add", f"{end.address}/24", "dev", DEVICE)
    for name, value in _TCP.items():
        command(*end.host.inside("sh", "-c", f"echo {value} > /proc/sys/net/ipv4/{name}"))
    # Larger than a bucket, a packet would be cut into frames for it.
    largest = str(min(shape.burst // 2, _LARGEST_PACKET))
    command(*space, "link", "set", DEVICE, "txqueuelen", "10000", "gso_max_size", largest, "up")


def _wait_until_up(host: Host) -> None:
    """A device is not, for some milliseconds after it was set up, and programs look for one that is."""
    end = time.monotonic() + _UP_SECONDS
    state = host.inside("cat", f"/sys/class/net/{DEVICE}/operstate")
    while command(*state).strip() == "down":
        if time.monotonic() > end:
            raise NotPermittedError(f"{DEVICE} of {host.namespace} does not come up")
        time.sleep(0.01)


def _shape(host: Host, shape: LinkShape) -> None:
    """A bucket of tokens for the rate, below a queue that holds every packet for the delay."""
    qdisc = ("tc", "-n", host.namespace, "qdisc", "add", "dev", DEVICE)
    place: tuple[str, ...] = ("root",)
    if shape.delay > 0.0:
        under_way = max(1000, round(2 * shape.rate * shape.delay / 8 / 64))
        delay = ("delay", f"{round(1e6 * shape.delay)}us", "limit", str(under_way))
        command(*qdisc, "root", "handle", "1:", "netem", *delay)
        place = ("parent", "1:1")
    bucket = ("rate", f"{round(shape.rate)}bit", "burst", str(shape.burst), "latency", "50ms")
    command(*qdisc, *place, "handle", "10:", "tbf", *bucket)


def _has_netem(host: Host) -> bool:
    """Return whether this kernel can delay packets by itself.

    It is tried on a device that nothing goes through yet.
    """
    qdisc = ("tc", "-n", host.namespace, "qdisc")
    found = attempt(*qdisc, "add", "dev", "lo", "root", "netem", "delay", "1us").returncode == 0
    attempt(*qdisc, "delete", "dev", "lo", "root")
    return found
