"""Two hosts on one machine, joined by a link of a chosen rate and delay, and a command on MPI ranks that are on both.

    python -m benchmarks.two_hosts [--rate 1gbit] [--delay 0.2ms] [-n 2] -- COMMAND ...
    python -m benchmarks.two_hosts --rate 1gbit -- spmd run MODULE --inputs F.npz --expect G.npz
    python -m benchmarks.two_hosts --rate 2.5gbit                        probe the link alone

Hosts are network namespaces, the link is a veth pair (or a delay line) with a bucket of tokens on both ends, ranks are
MPICH's (`make mpich`), over TCP, half of them on each host, each bound to one core. SPMD_NODE_ID tells the hosts apart,
so that ranks on different ones share no memory. Standard error shows what a probe measured of the link, and the bytes
that the link carried for the command; the command's own output and exit code are passed on. Everything is removed at
the end, whatever happens; the next run removes what a killed run has left.

Exits 77, with the reason, where this machine does not permit it.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from benchmarks.two_hosts.commands import NotPermittedError
from benchmarks.two_hosts.link import LinkShape, delay_of, link, rate_of
from benchmarks.two_hosts.mpich import HostsJob
from benchmarks.two_hosts.namespaces import hosts
from benchmarks.two_hosts.probe import probed
from spmd.errors import RunError

#: The exit code that test harnesses take for "skipped".
SKIPPED = 77


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parsed(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    try:
        return _run(options)
    except NotPermittedError as error:
        print(f"two hosts: not possible here: {error}", file=sys.stderr)
        return SKIPPED
    except RunError as error:
        print(f"two hosts: {error}", file=sys.stderr)
        return RunError.exit_code
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _run(options: argparse.Namespace) -> int:
    shape = LinkShape(options.rate, options.delay)
    with hosts(2) as both, link((both[0], both[1]), shape) as ends:
        job = HostsJob(both, options.ranks, tuple(options.command))
        if job.command:
            job.arguments()  # where there is no MPICH, nothing need be measured
        _say(f"{shape}: {probed(ends, shape.rate)}")
        if not job.command:
            return 0
        before = [end.sent_bytes() for end in ends]
        code = job.run()
        there, back = (end.sent_bytes() - was for end, was in zip(ends, before, strict=True))
        _say(f"the link carried {there:,} bytes there and {back:,} back")
        return code


def _say(text: str) -> None:
    print(f"two hosts: {text}", file=sys.stderr, flush=True)


def _leave(number: int, _: FrameType | None) -> None:
    """Exit by an exception, which unwinds what was set up."""
    sys.exit(128 + number)


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.two_hosts",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--rate", type=rate_of, default="1gbit", help="of the link, each way (default: 1gbit)"
    )
    parser.add_argument(
        "--delay", type=delay_of, default="0ms", help="of a packet, each way (default: none)"
    )
    parser.add_argument("-n", type=int, default=2, dest="ranks", help="ranks (default: 2)")
    parser.add_argument("command", nargs="*", metavar="COMMAND ...")
    options = parser.parse_args(arguments)
    if options.ranks < 1:
        parser.error("there must be a rank")
    return options


if __name__ == "__main__":
    sys.exit(main())
