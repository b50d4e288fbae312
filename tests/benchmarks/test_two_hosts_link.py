"""Tests of the link between two hosts: it is up when it is handed out, and it neither loses packets nor is early."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from benchmarks.two_hosts.commands import NotPermittedError, command
from benchmarks.two_hosts.link import DEVICE, LinkShape, link
from benchmarks.two_hosts.namespaces import Host, hosts
from benchmarks.two_hosts.probe import probed
from spmd.errors import RunError

SHAPES = (LinkShape(1e9), LinkShape(1e9, 2e-4))


@pytest.fixture(scope="module", autouse=True)
def _permitted() -> None:
    try:
        with hosts(2):
            pass
    except NotPermittedError as error:
        pytest.skip(f"no two hosts here: {error}")


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_both_ends_are_up(shape: LinkShape) -> None:
    """Both ends are up when the link is handed out, since UCX takes a device that is not up for a missing one."""
    with hosts(2) as (one, other), link((one, other), shape):
        for host in (one, other):
            state = host.inside("cat", f"/sys/class/net/{DEVICE}/operstate")
            assert command(*state).strip() in ("up", "unknown")


def test_packets_keep_their_order_and_their_delay() -> None:
    """A burst of datagrams takes the time of its bytes and the delay, and keeps its order.

    TCP would hide what the line does wrong.
    """
    shape = LinkShape(1e8, 5e-3)
    with hosts(2) as (one, other), link((one, other), shape) as ends:
        taker = other.inside(sys.executable, "-c", TAKES)
        with subprocess.Popen(taker, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            sent = float(command(*one.inside(sys.executable, "-c", SENDS, ends[1].address)))
            first, last, order = process.stdout.read().split()
    assert order == "True"
    assert shape.delay <= float(first) - sent
    assert float(last) - sent >= shape.delay + 8 * (COUNT * SIZE - shape.burst) / shape.rate


COUNT, SIZE = 100, 1000
TAKES = f"""
import socket, time
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taker:
    taker.bind(("", 5006))
    taker.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)  # all of them, if nobody takes any
    taker.settimeout(20)
    print("ready", flush=True)
    found = [(taker.recv({SIZE}), time.monotonic()) for _ in range({COUNT})]
numbers = [int.from_bytes(data[:4], "little") for data, _ in found]
print(found[0][1], found[-1][1], numbers == list(range({COUNT})))
"""
SENDS = f"""
import socket, sys, time
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    print(time.monotonic())
    for n in range({COUNT}):
        sender.sendto(n.to_bytes(4, "little") + bytes({SIZE - 4}), (sys.argv[1], 5006))
"""


def test_an_end_that_fails_is_said() -> None:
    """The error says that the other end is unreachable where a device is down."""
    with hosts(2) as (one, other), link((one, other), LinkShape(1e9)) as ends:
        command("ip", "-n", one.namespace, "link", "set", DEVICE, "down")
        with pytest.raises(RunError, match=r"the link's probe fails: .*unreachable"):
            probed(ends, 1e9)


def test_a_probe_ends_with_who_asked_for_it() -> None:
    with hosts(2) as (one, other), link((one, other), LinkShape(1e9)) as ends:
        line = (sys.executable, "-c", PROBES, repr(ends))
        with subprocess.Popen(line, stdin=subprocess.PIPE) as asking:
            end = time.monotonic() + 20
            while not (found := inside(other)):
                assert time.monotonic() < end
                time.sleep(0.01)
            asking.kill()
        while inside(other) & found:
            assert time.monotonic() < end
            time.sleep(0.01)


def inside(host: Host) -> set[str]:
    """Return the processes of a host."""
    return set(command("ip", "netns", "pids", host.namespace).split())


PROBES = """
import sys
import time
from benchmarks.two_hosts.link import LinkEnd
from benchmarks.two_hosts.namespaces import Host
from benchmarks.two_hosts.probe import probed
while True:
    probed(eval(sys.argv[1]), 1e9)
"""
