"""Measure a link and its cost: a round trip, the rate of a stream, and the share of a core left to hosts that compute.

Two small processes talk over TCP, one on each host, each on a core as a rank would be.

python -m benchmarks.two_hosts.probe RATE serve      as the other end, of a link of so many bits per second
python -m benchmarks.two_hosts.probe RATE ADDRESS    prints a LinkSpeed as JSON
"""

from __future__ import annotations

import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass

from benchmarks.two_hosts.link import LinkEnd
from launch.ranks.rank_environment import end_with_parent
from spmd.errors import RunError

_PORT = 5005
_ROUND_TRIPS = 200
#: Seconds of the stream, and those of its start, which the buckets and queues distort.
_SECONDS, _STARTING = 0.4, 0.1
_CHUNK = bytes(1 << 18)
_READY = "ready"
#: Seconds that an end waits for the other one.
_PATIENCE = 30.0
#: Computing beside messages: turns (the median counts), seconds of one at the link's rate, seconds of computing alone.
_TURNS, _TURN, _ALONE = 3, 0.2, 0.05
_LEAST_BYTES = 1 << 12
#: Seconds of computing between two looks at the messages, about as often as ranks look at theirs.
_PIECE = 3e-4


@dataclass(frozen=True)
class LinkSpeed:
    """Measured speed and cost of a link.

    Attributes:
        round_trip: Seconds of the median round trip of one byte.
        rate: Bytes of data per second that arrive of a long stream.
        kept: The share of what each host computes alone that it computes while it sends and receives as fast as it can;
            what is missing is the cost of the link and of TCP.
        both_ways: Bytes of data per second and way meanwhile.
    """

    round_trip: float
    rate: float
    kept: tuple[float, float]
    both_ways: float

    def __str__(self) -> str:
        one, other = self.kept
        return (
            f"{8e-9 * self.rate:.2f} Gbit/s of data, round trip {1e6 * self.round_trip:.0f} us; "
            f"hosts that compute meanwhile keep {one:.2f} and {other:.2f} of a core "
            f"at {8e-9 * self.both_ways:.2f} Gbit/s each way"
        )


def probed(ends: tuple[LinkEnd, LinkEnd], rate: float, before: tuple[str, ...] = ()) -> LinkSpeed:
    """Return the speed of the link between the two ends, a link of ``rate`` bits per second.

    ``before`` begins the command line of each process.

    Raises:
        RunError: An end fails or takes too long.
    """
    here, there = ends
    program = (*before, sys.executable, "-m", "benchmarks.two_hosts.probe", str(rate))
    cores = sorted(os.sched_getaffinity(0))
    serve = there.host.inside(*program, "serve")
    prepared = _on_core(cores[1 % len(cores)])
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True, preexec_fn=prepared) as server:
        try:
            assert server.stdout is not None
            if server.stdout.readline().strip() != _READY:
                raise RunError("the link's probe does not start")
            done = subprocess.run(
                here.host.inside(*program, there.address),
                capture_output=True,
                text=True,
                timeout=2 * _PATIENCE,
                preexec_fn=_on_core(cores[0]),
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise RunError(f"the link's probe took more than {2 * _PATIENCE:g} s") from error
        finally:
            server.kill()
    if done.returncode:
        said = done.stderr.strip().rpartition("\n")[2]
        raise RunError(f"the link's probe fails: {said or f'exit code {done.returncode}'}")
    return LinkSpeed(**json.loads(done.stdout))


def _on_core(core: int) -> Callable[[], None]:
    def prepare() -> None:
        end_with_parent(signal.SIGKILL)
        os.sched_setaffinity(0, (core,))

    return prepare


def _serve(rate: float) -> None:
    """Answer bytes, then take a stream and answer its rate, then compute beside messages and answer the share kept."""
    with socket.create_server(("", _PORT)) as server:
        server.settimeout(_PATIENCE)
        print(_READY, flush=True)
        peer, _ = server.accept()
        with peer:
            _prepare(peer)
            for _ in range(_ROUND_TRIPS):
                peer.sendall(_received(peer, 1))
            stream = int.from_bytes(_received(peer, 8), "little")
            _say(peer, _received_rate(peer, stream))
            _say(peer, _kept(peer, rate)[0])


def _measure(address: str, rate: float) -> LinkSpeed:
    with socket.create_connection((address, _PORT), _PATIENCE) as peer:
        _prepare(peer)
        trips = []
        for _ in range(_ROUND_TRIPS):
            start = time.perf_counter()
            peer.sendall(b"?")
            _received(peer, 1)
            trips.append(time.perf_counter() - start)
        stream = round(_SECONDS * rate / 8) + _LEAST_BYTES
        peer.sendall(stream.to_bytes(8, "little"))
        for start_byte in range(0, stream, len(_CHUNK)):
            peer.sendall(_CHUNK[: stream - start_byte])
        of_stream = _heard(peer)
        kept, both_ways = _kept(peer, rate)
        return LinkSpeed(statistics.median(trips), of_stream, (kept, _heard(peer)), both_ways)


def _prepare(peer: socket.socket) -> None:
    peer.settimeout(_PATIENCE)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _say(peer: socket.socket, number: float) -> None:
    peer.sendall(json.dumps(number).ljust(32).encode())


def _heard(peer: socket.socket) -> float:
    return float(_received(peer, 32))


def _received(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += _received_some(peer, size - len(data))
    return data


def _received_rate(peer: socket.socket, size: int) -> float:
    """Return the bytes per second of a stream of ``size`` bytes, without those of its start."""
    begin = time.perf_counter()
    first, since, until = 0, begin, begin
    left = size
    while left:
        left -= len(_received_some(peer, left))
        until = time.perf_counter()
        if until - begin < _STARTING and left:
            first, since = size - left, until
    return (size - first) / max(until - since, 1e-9)


def _received_some(peer: socket.socket, most: int) -> bytes:
    if part := peer.recv(min(most, 1 << 20)):
        return part
    raise ConnectionError("the other end of the link is gone")


def _kept(peer: socket.socket, rate: float) -> tuple[float, float]:
    """Return the share of what this host computes alone that it computes beside messages.

    The second number is the bytes per second each way meanwhile.
    """
    size = max(round(_TURN * rate / 8), _LEAST_BYTES)
    turns = []
    for _ in range(_TURNS):
        _meet(peer)
        count, spent, alone = 0, 0.0, time.perf_counter()
        while spent < _ALONE:
            _compute()
            count, spent = count + 1, time.perf_counter() - alone
        of_each = spent / count
        _meet(peer)
        pieces, seconds = _exchanged(peer, size, max(round(_PIECE / of_each), 1))
        turns.append((pieces * of_each / seconds, size / seconds))
    kept, both_ways = zip(*turns, strict=True)
    return statistics.median(kept), statistics.median(both_ways)


def _meet(peer: socket.socket) -> None:
    peer.sendall(b"!")
    _received(peer, 1)


def _exchanged(peer: socket.socket, size: int, between: int) -> tuple[int, float]:
    """Send and receive ``size`` bytes each, and compute ``between`` pieces between two looks at the messages.

    Returns the number of pieces, and the seconds.
    """
    to_send = to_receive = size
    chunk = memoryview(_CHUNK)
    peer.setblocking(False)
    pieces, start = 0, time.perf_counter()
    while to_send or to_receive:
        for _ in range(between):
            _compute()
        pieces += between
        with suppress(BlockingIOError):
            while to_send:
                to_send -= peer.send(chunk[:to_send])
        with suppress(BlockingIOError):
            while to_receive:
                to_receive -= len(_received_some(peer, min(to_receive, len(chunk))))
    seconds = time.perf_counter() - start
    peer.settimeout(_PATIENCE)
    return pieces, seconds


def _compute() -> None:
    """Take some microseconds of a core, and no memory bandwidth."""
    total = 0
    for n in range(200):
        total += n


def main(rate: float, role: str) -> int:
    try:
        if role == "serve":
            _serve(rate)
        else:
            print(json.dumps(asdict(_measure(role, rate))))
    except OSError as error:  # a connection's, a timeout
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2]))
