"""Tests of which machine a compilation is for: named, described in a file, or what is known of the job's nodes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from launch.target.machine_option import described, machine_for
from spmd.machine.description import MachineDescription
from spmd.machine.named import machine_named
from spmd.machine.reader import MachineError, write_machine

CLUSTER = machine_named("tcp-cluster")


@pytest.fixture(autouse=True)
def _nothing_calibrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))


def written(folder: Path, machine: MachineDescription) -> str:
    path = folder / "machine.json"
    path.write_text(write_machine(machine), encoding="utf-8")
    return str(path)


def test_a_name_or_a_file(tmp_path: Path) -> None:
    mine = replace(CLUSTER, name="of the machine option's test")
    file = written(tmp_path, mine)
    assert described("tcp-cluster{links=0.5}") == CLUSTER.with_links(0.5)
    assert described(file) == mine
    assert described(f"{file}{{links=0.5,node=1}}") == mine.with_links(0.5).with_nodes(1)
    with pytest.raises(MachineError, match=r"nothing\.json: cannot be read"):
        described(str(tmp_path / "nothing.json"))


def test_what_is_not_told_is_here() -> None:
    assert machine_for(None) == machine_named()
    assert not machine_for(None).overlaps


def test_nodes_of_a_job_are_joined_by_a_network() -> None:
    machine = machine_for(None, 2)
    assert machine.overlaps
    assert [(way.name, way.devices) for way in machine.exchanges] == [
        (machine_named().exchanges[0].name, 2),
        (CLUSTER.exchanges[1].name, 16384),
    ]
    assert machine.rates == machine_named().rates
    assert machine.name == "cpu-avx512 on tcp-cluster{node=2}"


def test_a_described_network_stays() -> None:
    assert machine_for("tcp-cluster{links=0.25}", 2) == CLUSTER.with_links(0.25).with_nodes(2)


def test_nodes_that_are_given_stay() -> None:
    """Ranks may be taken for nodes of their own where they are not."""
    assert machine_for("tcp-cluster{node=1}", 2) == CLUSTER.with_nodes(1)


def test_one_node_is_as_described() -> None:
    assert machine_for("tcp-cluster") == CLUSTER


def test_what_was_calibrated_between_nodes_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = replace(CLUSTER.with_links(0.5), name="found by the machine option's test")
    monkeypatch.setattr("launch.target.machine_option.machine_here", lambda: mine)
    assert machine_for(None, 1) == mine.with_nodes(1)
    # In one node nothing of it counts: programs are those that they were before it was measured.
    inside = machine_for(None)
    assert inside.exchanges == mine.exchanges[:1]
    assert not inside.overlaps
