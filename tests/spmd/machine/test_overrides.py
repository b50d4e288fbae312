"""Overrides of machines: which field changes, what else stays, which names and values are refused."""

from __future__ import annotations

import pytest

from spmd.machine.named import SHIPPED, machine_named
from spmd.machine.overrides import override_names, with_override
from spmd.machine.reader import MachineError
from spmd.shape import PrimitiveType

H100 = machine_named("dgx-h100")
CORE = machine_named("cpu-avx512")


def test_links_and_node_are_those_of_varied_names() -> None:
    assert with_override(H100, "links", "0.25") == machine_named("dgx-h100{links=0.25}")
    assert with_override(H100, "links", "0.25x") == machine_named("dgx-h100{links=0.25}")
    assert with_override(H100, "node", "2") == machine_named("dgx-h100{node=2}")
    both = with_override(with_override(H100, "links", "0.5"), "node", "2")
    assert both == machine_named("dgx-h100{links=0.5,node=2}")


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("attained.memory", "0.5", lambda m: m.attained.memory == 0.5),
        ("units", "100", lambda m: m.units == 100),
        ("units", "0.5x", lambda m: m.units == 66),
        ("host_bandwidth", "2x", lambda m: m.host_bandwidth == 1.02e11),
        ("host_bandwidth", "0", lambda m: m.host_bandwidth == 0.0),
        ("program_bytes", "7e10", lambda m: m.program_bytes == 70_000_000_000),
        ("levels.HBM3.bandwidth", "2x", lambda m: m.levels[-1].bandwidth == 6.7e12),
        ("rates.bf16.attained", "0.9", lambda m: m.rates_of(PrimitiveType.BF16).attained == 0.9),
        ("exchanges.NVLink 4.busy", "0", lambda m: m.exchanges[0].busy == 0.0),
        ("exchanges.NVLink 4.protocols.LL.ring", "1", lambda m: m.exchanges[0].protocols[0].ring == 1),
        ("exchanges.InfiniBand NDR.ports", "1", lambda m: m.exchanges[1].ports == 1),
        ("tiled.tiles.2.attained", "0.5", lambda m: m.tiled.tiles[2].attained == 0.5),
    ],
)  # fmt: skip
def test_a_field_takes_a_value_or_a_factor(name: str, text: str, value) -> None:
    found = with_override(H100, name, text)
    assert value(found)
    assert not value(H100)
    assert found.name == f"dgx-h100{{{name}={text}}}"
    assert found.digest != H100.digest


def test_fields_that_a_file_leaves_out_can_be_set() -> None:
    assert CORE.host_bandwidth == 0.0
    assert with_override(CORE, "host_bandwidth", "5e10").host_bandwidth == 5e10
    assert with_override(CORE, "spread", "0.02").spread == 0.02


def test_overrides_add_up() -> None:
    found = with_override(with_override(H100, "links", "0.5"), "attained.memory", "0.5")
    assert found.name == "dgx-h100{links=0.5,attained.memory=0.5}"
    assert found.exchanges == machine_named("dgx-h100{links=0.5}").exchanges
    assert found.attained.memory == 0.5


@pytest.mark.parametrize("shipped", SHIPPED)
def test_every_number_has_a_name_and_keeps_its_value(shipped: str) -> None:
    machine = machine_named(shipped)
    names = override_names(machine)
    assert len(set(names)) == len(names)
    assert {"links", "node", "thunk_seconds", "rates.f32.matrix", "spread"} <= set(names)
    assert not {"format", "name", "source"} & set(names)
    for name in names:
        if name != "node":
            assert with_override(machine, name, "1x").digest == machine.digest


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("linx", "1", "dgx-h100 has no field 'linx'; did you mean links?"),
        ("atained.memory", "1", "did you mean attained.memory?"),
        (
            "transcendental",
            "1",
            r"; there are rates.f64.transcendental, rates.f32.transcendental, ",
        ),
        ("zzz", "1", r"; there are links, node, .*, \.\.$"),
        ("format", "1", "no field 'format'"),
        ("links", "fast", "links must be a number, found 'fast'"),
        ("links", "0", "links must be from 0.0001 to 10000"),
        ("links", "nan", "links must be a number, found 'nan'"),
        ("node", "0", "a node has from 1 to 16777216 devices, found 0"),
        ("node", "9" * 30, "a node has from 1 to"),
        ("node", "2x", "a node has from 1 to"),
        ("attained.memory", "2", "attained.memory=2: attained: memory must be from 0.001 to 1"),
        ("attained.memory", "inf", "attained.memory must be a number, found 'inf'"),
        ("units", "infx", "units must be a number, found 'inf'"),
        ("units", "9" * 400, "units must be a number"),
        ("units", "1e300x", "units must be from 1 to"),
        ("attained.memory", "", "attained.memory must be a number, found ''"),
        ("units", "1.5", "units must be an integer"),
        ("program_bytes", "2x", "program_bytes are more than the memory has"),
        ("levels.L2.bytes", "1", "levels must stand in growing order"),
    ],
)
def test_what_cannot_be_set_is_refused(name: str, text: str, message: str) -> None:
    with pytest.raises(MachineError, match=message):
        with_override(H100, name, text)
