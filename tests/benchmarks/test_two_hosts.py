"""Two hosts on one machine: the link does what it was asked for, programs give the same bits over it, nothing is left."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmarks.two_hosts.__main__ import main
from benchmarks.two_hosts.commands import NotPermittedError, command
from benchmarks.two_hosts.link import LinkEnd, LinkShape, delay_of, link, rate_of
from benchmarks.two_hosts.mpich import HostsJob
from benchmarks.two_hosts.namespaces import Host, hosts, remove_leftovers
from benchmarks.two_hosts.probe import LinkSpeed, probed
from tests.paths import CASES

SKIPPED = 77
PYTHON = (sys.executable, "-m", "benchmarks.two_hosts")


def namespaces() -> set[str]:
    return {line.partition(" ")[0] for line in command("ip", "netns", "list").splitlines()}


@pytest.fixture(scope="module")
def _permitted() -> None:
    """Skips what makes hosts where that is not allowed."""
    try:
        with hosts(2):
            pass
    except NotPermittedError as error:
        pytest.skip(f"no two hosts here: {error}")


needs_hosts = pytest.mark.usefixtures("_permitted")


def require_mpich() -> None:
    try:
        HostsJob((Host(0, ""),), 1, ("true",)).arguments()
    except NotPermittedError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    ("text", "rate"), [("1gbit", 1e9), ("2.5gbit", 2.5e9), ("100mbit", 1e8), ("8kbit", 8e3)]
)
def test_rates(text: str, rate: float) -> None:
    assert rate_of(text) == rate


@pytest.mark.parametrize("text", ["1", "gbit", "1 gbit", "-1gbit", "1ms", "1gbits", ""])
def test_a_rate_needs_its_unit(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="kbit, mbit, gbit"):
        rate_of(text)


def test_a_wrong_rate_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    for text, said in (("1", "'1' is no number with one of"), ("0gbit", "no rate above zero")):
        with pytest.raises(SystemExit):
            main(["--rate", text])
        assert said in capsys.readouterr().err


def test_delays() -> None:
    found = (delay_of("0.2ms"), delay_of("50us"), delay_of("1s"))
    assert found == pytest.approx((2e-4, 5e-5, 1.0))


@needs_hosts
def test_the_link_keeps_its_rate_and_its_delay() -> None:
    with hosts(2) as (one, other):
        try:
            with link((one, other), LinkShape(1e8, 5e-3)) as ends:
                speed = probed_until(
                    ends, 1e8, lambda x: 8 * x.rate > 0.7e8 and x.round_trip < 3e-2
                )
                sent = [end.sent_bytes() for end in ends]
        except NotPermittedError as error:
            pytest.skip(str(error))
    # Data in frames of 1500 bytes, and what the bucket and the queue hold at the start and the end of the stream.
    assert 0.7e8 < 8 * speed.rate < 1.1e8
    assert 1e-2 <= speed.round_trip < 3e-2
    # A stream goes there alone; then both send as much.
    assert sent[0] - 4e6 > sent[1] > 0


@needs_hosts
def test_without_a_delay_a_round_trip_is_short() -> None:
    with hosts(2) as (one, other), link((one, other), LinkShape(1e9)) as ends:
        assert probed_until(ends, 1e9, lambda x: x.round_trip < 2e-3).round_trip < 2e-3


def probed_until(
    ends: tuple[LinkEnd, LinkEnd], rate: float, is_fast: Callable[[LinkSpeed], bool]
) -> LinkSpeed:
    """Return the best of a few probes of the link: other processes on this machine slow a probe down."""
    for _ in range(5):
        speed = probed(ends, rate)
        if is_fast(speed):
            break
    return speed


@needs_hosts
def test_who_was_killed_leaves_hosts_to_the_next() -> None:
    with hosts(1) as (alive,):
        with subprocess.Popen(
            (sys.executable, "-c", LEAVES_A_HOST), stdout=subprocess.PIPE, text=True
        ) as killed:
            assert killed.stdout is not None
            left = killed.stdout.readline().strip()
            assert left in namespaces()
            killed.kill()
        assert left in namespaces()
        remove_leftovers()
        assert left not in namespaces()
        assert alive.namespace in namespaces()
    assert alive.namespace not in namespaces()


LEAVES_A_HOST = """
import time
from benchmarks.two_hosts.namespaces import hosts
with hosts(1) as (host,):
    print(host.namespace, flush=True)
    time.sleep(60)
"""


@needs_hosts
def test_a_signal_ends_the_job_and_removes_the_hosts(tmp_path: Path) -> None:
    require_mpich()
    started = tmp_path / "started"
    line = ("sh", "-c", f"touch {started}; exec sleep 60")
    job = subprocess.Popen((*PYTHON, "--", *line), stderr=subprocess.DEVNULL)
    end = time.monotonic() + 20
    try:
        while not started.exists():
            assert time.monotonic() < end
            time.sleep(0.05)
        mine = {name for name in namespaces() if name.startswith(f"spmd-{job.pid}-")}
        assert len(mine) == 2
    finally:
        job.send_signal(signal.SIGTERM)
        code = job.wait(30)
    assert code == 128 + signal.SIGTERM
    assert not mine & namespaces()


@needs_hosts
def test_the_commands_exit_code_is_passed_on() -> None:
    require_mpich()
    assert subprocess.run((*PYTHON, "--", "sh", "-c", "exit 3"), check=False).returncode == 3


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    done = subprocess.run(
        PYTHON,
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == SKIPPED
    assert done.stderr == "two hosts: not possible here: no ip here (iproute2)\n"


@needs_hosts
@pytest.mark.parametrize(("name", "wire"), [("mlp_dp2", 30_000), ("kv_decode_dp2tp2", 40_000)])
def test_a_program_on_two_hosts_gives_the_bits_of_one_process(
    name: str, wire: int, tmp_path: Path
) -> None:
    """wire: bytes that must cross each way, of what the program exchanges between hosts."""
    require_mpich()
    ranks = json.loads((CASES / name / "case.json").read_text())["num_partitions"]
    files = ("--inputs", str(CASES / name / "inputs.npz"), "--outputs", str(tmp_path / "out.npz"))
    # The same program on both sides: how products are cut may decide on their bits.
    machine = ("--machine", f"tcp-cluster{{node={ranks // 2}}}")
    run = ("run", str(CASES / name / "module.hlo"), *files, *machine)
    program = ("-n", str(ranks), "--", "python", "-m", "launch", *run)
    done = subprocess.run((*PYTHON, *program), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    carried = re.search(r"carried ([\d,]+) bytes there and ([\d,]+) back", done.stderr)
    assert carried is not None
    assert min(int(count.replace(",", "")) for count in carried.groups()) > wire
    with np.load(tmp_path / "out.npz") as file:
        far = dict(file)
    here = (sys.executable, "-m", "launch", *run)
    subprocess.run(here, check=True, stdout=subprocess.DEVNULL)
    with np.load(tmp_path / "out.npz") as file:
        near = dict(file)
    assert far.keys() == near.keys()
    for output, values in near.items():
        assert far[output].tobytes() == values.tobytes(), output
