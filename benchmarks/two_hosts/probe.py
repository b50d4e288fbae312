"""What the link does: a round trip and the rate of a stream, measured by two small processes that talk over TCP.

python -m benchmarks.two_hosts.probe serve      as the other end
python -m benchmarks.two_hosts.probe ADDRESS    prints {"round_trip_s": ..., "bytes_per_s": ...}
"""

from __future__ import annotations

import json
import socket
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass

from benchmarks.two_hosts.link import LinkEnd

_PORT = 5005
_ROUND_TRIPS = 200
#: Of the stream; what the buckets and queues hold at its start has gone by after a part of it.
_SECONDS, _STARTING = 0.4, 0.1
_CHUNK = bytes(1 << 18)
_READY = "ready"


@dataclass(frozen=True)
class LinkSpeed:
    """round_trip: seconds of the median one of a byte. rate: bytes of data per second that arrive of a long stream."""

    round_trip: float
    rate: float

    def __str__(self) -> str:
        return f"{8e-9 * self.rate:.2f} Gbit/s of data, round trip {1e6 * self.round_trip:.0f} us"


def probed(ends: tuple[LinkEnd, LinkEnd]) -> LinkSpeed:
    """Of the link between the two ends."""
    here, there = ends
    program = (sys.executable, "-m", "benchmarks.two_hosts.probe")
    serve = there.host.inside(*program, "serve")
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            server.stdout.readline()
            done = subprocess.run(
                here.host.inside(*program, there.address),
                capture_output=True,
                text=True,
                check=True,
                timeout=30,
            )
        finally:
            server.kill()
    found = json.loads(done.stdout)
    return LinkSpeed(found["round_trip_s"], found["bytes_per_s"])


def _serve() -> None:
    """Answers bytes; then takes a stream and answers how fast it came."""
    with socket.create_server(("", _PORT)) as server:
        print(_READY, flush=True)
        peer, _ = server.accept()
        with peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in range(_ROUND_TRIPS):
                peer.sendall(peer.recv(1))
            peer.sendall(json.dumps(_received_rate(peer)).encode())


def _received_rate(peer: socket.socket) -> float:
    """Bytes per second, without those of the stream's start."""
    begin = time.perf_counter()
    counted, since, until = 0, begin, begin
    while part := peer.recv(1 << 20):
        until = time.perf_counter()
        if until - begin < _STARTING:
            since = until
        else:
            counted += len(part)
    return counted / (until - since)


def _measure(address: str) -> None:
    with socket.create_connection((address, _PORT)) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        trips = []
        for _ in range(_ROUND_TRIPS):
            start = time.perf_counter()
            peer.sendall(b"?")
            peer.recv(1)
            trips.append(time.perf_counter() - start)
        end = time.perf_counter() + _SECONDS
        while time.perf_counter() < end:
            peer.sendall(_CHUNK)
        peer.shutdown(socket.SHUT_WR)
        rate = json.loads(peer.recv(1 << 10))
    print(json.dumps({"round_trip_s": statistics.median(trips), "bytes_per_s": rate}))


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        _serve()
    else:
        _measure(sys.argv[1])
