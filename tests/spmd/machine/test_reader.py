"""Tests of machine descriptions as JSON: what is read back, what is refused and how."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from spmd.machine.description import Attained, MachineDescription
from spmd.machine.named import DEFAULT, SHIPPED, machine_named, with_own_name
from spmd.machine.reader import MAX_BYTES, MachineError, read_machine, write_machine
from spmd.shape import PrimitiveType


def fields() -> dict[str, Any]:
    return json.loads(write_machine(machine_named()))


def read(found: object) -> MachineDescription:
    return read_machine(json.dumps(found).encode(), "m.json")


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_descriptions_are_read_back_as_written(name: str) -> None:
    machine = machine_named(name)
    again = read_machine(write_machine(machine).encode(), name)
    assert again == machine
    assert again.digest == machine.digest
    assert machine.name == name


def test_the_gpus_are_as_published() -> None:
    h100, h200 = machine_named("dgx-h100"), machine_named("dgx-h200")
    assert (h100.levels[-1].bandwidth, h200.levels[-1].bandwidth) == (3.35e12, 4.8e12)
    published = [
        [(kind, replace(rates, attained=0.0, source="")) for kind, rates in one.rates]
        for one in (h100, h200)
    ]
    assert published[0] == published[1]
    assert [way.bandwidth for way in h100.exchanges] == [4.5e11, 5.0e10]
    assert "datasheet" in h100.source


GPUS = [name for name in SHIPPED if machine_named(name).kind == "gpu"]


@pytest.mark.parametrize("name", GPUS)
def test_every_constant_of_the_gpus_has_its_source(name: str) -> None:
    machine = machine_named(name)
    for said in ("attained.matrix", "attained.memory", "spread"):
        assert said in machine.source
    if machine.fused_attention is None:
        assert "attained.attention" in machine.source
    else:
        assert "attained" in machine.fused_attention.source
    for said in ("Published", "datasheet", "Derived", "Set here", "program_bytes"):
        assert said in machine.source
    inside, network = machine.exchanges
    assert "busy" in inside.source
    assert ("multicast" in inside.source) == (inside.multicast is not None)
    for way in (inside, network):
        for said in ("attained", "latency", "protocols"):
            assert said in way.source
    assert machine.tiled is not None
    assert any(said in machine.tiled.source for said in ("Fitted", "Carried over"))


@pytest.mark.parametrize("name", GPUS)
def test_every_attained_rate_says_how_it_was_measured(name: str) -> None:
    own = [rates for _, rates in machine_named(name).rates if rates.attained]
    assert len(own) >= 4
    for rates in own:
        assert rates.source.removeprefix("TF32. ").startswith(
            ("Sustained", "Derived", "Not measured", "Carried over")
        )


@pytest.mark.parametrize(
    ("name", "of_links", "said"),
    [
        ("dgx-a100", 32e9, "PCIe 64 GB/s both ways"),
        ("dgx-h100", 51e9, "51 GB/s, those to the host 52, of the 64 GB/s each way of PCIe"),
        ("dgx-h200", 64e9, "PCIe 128 GB/s both ways"),
        ("dgx-b200", 64e9, "PCIe 128 GB/s both ways"),
        ("gb200-nvl72", 225e9, "NVLink-C2C 900 GB/s both ways for the two GPUs"),
    ],
)
def test_host_links_are_as_published_or_measured(name: str, of_links: float, said: str) -> None:
    assert machine_named(name).host_bandwidth == of_links
    assert said in machine_named(name).source


@pytest.mark.parametrize(
    ("name", "units", "memory", "bandwidth", "nvlink", "devices", "port"),
    [
        ("dgx-a100", 108, 80e9, 2.039e12, 600e9, 8, 25e9),
        ("dgx-h100", 132, 80e9, 3.35e12, 900e9, 8, 50e9),
        ("dgx-h200", 132, 141e9, 4.8e12, 900e9, 8, 50e9),
        ("dgx-b200", 148, 180e9, 7.7e12, 1.8e12, 8, 50e9),
        ("gb200-nvl72", 148, 186e9, 8e12, 1.8e12, 72, 50e9),
    ],
)
def test_gpus_have_the_figures_of_their_datasheets(
    name: str, units: int, memory: float, bandwidth: float, nvlink: float, devices: int, port: float
) -> None:
    machine = machine_named(name)
    assert (machine.units, machine.levels[-1].size) == (units, memory)
    assert machine.levels[-1].bandwidth == bandwidth
    inside, network = machine.exchanges
    assert (2 * inside.bandwidth, inside.devices, network.bandwidth) == (nvlink, devices, port)


@pytest.mark.parametrize(
    ("name", "tera_flops"),
    [
        ("dgx-a100", {"f64": 19.5, "f32": 156, "bf16": 312, "f16": 312, "s8": 624}),
        ("dgx-h100", {"f64": 67, "f32": 494.5, "bf16": 989.5, "f8e4m3fn": 1979, "s8": 1979}),
        ("dgx-b200", {"f64": 37, "f32": 1100, "bf16": 2250, "f8e4m3fn": 4500, "f4e2m1fn": 9000}),
        ("gb200-nvl72", {"f64": 40, "f32": 1250, "f16": 2500, "f8e4m3fn": 5000, "f4e2m1fn": 10000}),
    ],
)  # fmt: skip
def test_dense_products_have_the_rates_of_the_datasheets(
    name: str, tera_flops: dict[str, float]
) -> None:
    machine = machine_named(name)
    for kind, rate in tera_flops.items():
        assert machine.rates_of(PrimitiveType(kind)).matrix == pytest.approx(1e12 * rate)


def test_types_that_a_gpu_lacks_run_as_the_nearest_that_it_has() -> None:
    a100, h100 = machine_named("dgx-a100"), machine_named("dgx-h100")
    assert a100.rates_of(PrimitiveType.F8E4M3FN) == a100.rates_of(PrimitiveType.BF16)
    assert h100.rates_of(PrimitiveType.F4E2M1FN) == h100.rates_of(PrimitiveType.F8E4M3FN)
    assert h100.rates_of(PrimitiveType.S4) == h100.rates_of(PrimitiveType.S8)


def test_files_without_later_fields_are_read() -> None:
    """Versions before these fields wrote files without them."""
    old = fields()
    for name in ("attained", "program_bytes"):
        del old[name]
    for way in old["exchanges"]:
        for name in ("far", "ports", "attained", "busy"):
            del way[name]
    machine = read(old)
    assert machine == machine_named()
    assert machine.attained == Attained(1.0, 1.0, 1.0)
    assert machine.memory_limit == machine.levels[-1].size
    assert machine.exchanges[0] == replace(machine.exchanges[0], ports=0, attained=1.0, busy=1.0)


def test_attained_rates_are_taken_off_once() -> None:
    h100 = machine_named("dgx-h100")
    seen = h100.as_attained()
    assert seen.rates_of(PrimitiveType.BF16).matrix == pytest.approx(0.767 * 9.895e14)
    assert seen.rates_of(PrimitiveType.F8E4M3FN).matrix == pytest.approx(0.708 * 1.979e15)
    assert seen.rates_of(PrimitiveType.F64).matrix == pytest.approx(0.767 * 6.7e13)
    assert seen.levels[-1].bandwidth == pytest.approx(0.867 * 3.35e12)
    assert seen.levels[0] == h100.levels[0]
    assert [way.bandwidth for way in seen.exchanges] == pytest.approx([3.699e11, 4.7e10])
    assert seen.as_attained() == seen


def test_links_at_a_quarter() -> None:
    h100, slow = machine_named("dgx-h100"), machine_named("dgx-h100{links=0.25}")
    assert [way.bandwidth for way in slow.exchanges] == [1.125e11, 1.25e10]
    assert [way.latency for way in slow.exchanges] == [way.latency for way in h100.exchanges]
    assert (slow.levels, slow.rates) == (h100.levels, h100.rates)
    assert (slow.name, slow.digest == h100.digest) == ("dgx-h100{links=0.25}", False)
    assert machine_named("dgx-h100{links=1}").exchanges == h100.exchanges
    assert slow.exchanges[0].multicast is not None
    assert slow.exchanges[0].multicast.bandwidth == 1.2e11


@pytest.mark.parametrize(("node", "widest"), [(1, 16384), (2, 16384), (3, 16383), (16, 16384)])
def test_nodes_of_another_size(node: int, widest: int) -> None:
    cluster, other = machine_named("tcp-cluster"), machine_named(f"tcp-cluster{{node={node}}}")
    assert [way.devices for way in other.exchanges] == [node, widest]
    assert [way.ports for way in other.exchanges] == [way.ports for way in cluster.exchanges]
    named = replace(other, name="renamed")
    assert read(json.loads(write_machine(named))) == named


def test_nodes_that_hold_more_than_a_circle_did() -> None:
    """No exchange is wider than the node any more."""
    assert [way.devices for way in machine_named("dgx-h100{node=99999}").exchanges] == [99999]


def test_links_and_nodes() -> None:
    machine = machine_named("tcp-cluster{links=0.25,node=2}")
    assert machine.name == "tcp-cluster{links=0.25,node=2}"
    assert machine == machine_named("tcp-cluster").with_links(0.25).with_nodes(2)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("dgx-h100{links=0}", "links must be from 0.0001 to 10000 times as fast, found 0"),
        ("dgx-h100{links=99999}", "links must be from"),
        ("dgx-h100{links=-1}", "no machine is named"),
        ("dgx-h100{links=nan}", "no machine is named"),
        ("dgx-h100{rails=2}", "no machine is named .* it is varied as dgx-h100{links=FACTOR}"),
        ("nobody{links=2}", "no machine is named 'nobody'"),
        ("dgx-h100{links=2}{links=2}", "no machine is named"),
        ("dgx-h100{node=0}", "a node has from 1 to 16777216 devices, found 0"),
        ("dgx-h100{node=1.5}", "no machine is named"),
        ("dgx-h100{node=2,links=2}", "no machine is named"),
        ("dgx-h100{links=2,}", "no machine is named"),
        ("dgx-h100{}", "no machine is named"),
    ],
)
def test_variations_that_none_are(name: str, message: str) -> None:
    with pytest.raises(MachineError, match=message):
        machine_named(name)


def test_the_digest_is_of_the_figures_and_not_of_the_name() -> None:
    other = {**fields(), "name": "another", "source": "elsewhere"}
    assert read(other).digest == machine_named().digest
    assert read({**other, "row_seconds": 1e-3}).digest != machine_named().digest


def test_working_sets_find_their_level() -> None:
    machine = machine_named()
    for level in machine.levels:
        assert machine.level_for(level.size) is level
    assert machine.level_for(1e30) is machine.levels[-1]


def test_kernel_local_levels_serve_only_what_a_kernel_reads_again() -> None:
    machine = machine_named("dgx-h100")
    nearest, cache, _ = machine.levels
    assert nearest.kernel_local
    assert machine.level_for(1000) is cache
    assert machine.level_for(1000, same_kernel=True) is nearest
    assert machine.byte_seconds(1000) == 1 / cache.bandwidth
    assert read_machine(write_machine(machine).encode(), "written") == machine


def test_types_without_rates_take_those_of_their_kind() -> None:
    rates = {
        "f32": {"matrix": 3.0, "simple": 3.0, "transcendental": 3.0},
        "f64": {"matrix": 2.0, "simple": 2.0, "transcendental": 2.0},
    }
    machine = read({**fields(), "rates": rates})
    assert machine.rates_of(PrimitiveType.S64).simple == 2
    assert machine.rates_of(PrimitiveType.C128).simple == 2
    assert machine.rates_of(PrimitiveType.F8E8M0FNU).simple == 3


def exchange(**more: object) -> dict[str, object]:
    return {"name": "E", "devices": 8, "bandwidth": 1e9, "latency": 1e-6, **more}


PROTOCOL = {
    "name": "P",
    "start": 1e-6,
    "ring": 1e-6,
    "tree": 1e-6,
    "attained": 1.0,
    "tree_attained": 1.0,
}
TILE = {"rows": 128, "columns": 128, "attained": 1.0}
TILED = {
    "tiles": [TILE],
    "splits": [1],
    "start_depth": 0,
    "result_bandwidth": 1e12,
    "source": "nowhere",
}


def level(size: float, bandwidth: object = 1e9) -> dict[str, object]:
    return {"name": "L", "bytes": size, "bandwidth": bandwidth}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "format 2; this version reads 1"),
        ({"kind": "tpu"}, "kind must be cpu or gpu, found 'tpu'"),
        ({"kind": 3}, "kind must be a string"),
        ({"name": ""}, "name must be a string of 1 to 2000 characters"),
        ({"units": 0}, "units must be from 1 to"),
        ({"units": 1.5}, "units must be an integer, found 1.5"),
        ({"units": True}, "units must be a number, found True"),
        ({"units": 10**400}, "units must be from 1 to"),
        ({"row_seconds": -1e-9}, "row_seconds must be from 0 to 10"),
        ({"row_seconds": "1"}, "row_seconds must be a number, found '1'"),
        ({"levels": []}, "levels must be a list of 1 to 64"),
        ({"levels": [level(9)] * 70}, "levels must be a list of 1 to 64"),
        ({"levels": [level(9), level(9)]}, "levels must stand in growing order of bytes"),
        ({"levels": [{**level(9), "kernel_local": 1}]}, "is the memory, which is not kernel_local"),
        (
            {"levels": [{**level(9), "kernel_local": 2}, level(10)]},
            "kernel_local must be from 0 to 1",
        ),
        ({"levels": [3]}, r"levels\[0\]: expected an object, found 3"),
        ({"levels": [level(9, 0)]}, r"levels\[0\]: bandwidth must be from 1 to"),
        ({"levels": [{**level(9), "x": 1}]}, r"levels\[0\]: unknown field 'x'"),
        ({"rates": {}}, "rates must be an object by element type, f32 among them"),
        ({"rates": {"f32": {}}}, "rates.f32: field 'matrix' is missing"),
        ({"more": 1}, "unknown field 'more'"),
        ({"exchanges": [exchange(ports=-1)]}, r"exchanges\[0\]: ports must be from 0"),
        ({"exchanges": [exchange(ports=1.5)]}, r"exchanges\[0\]: ports must be an integer"),
        (
            {"exchanges": [exchange(attained=0)]},
            r"exchanges\[0\]: attained must be from 0.001 to 1",
        ),
        ({"exchanges": [exchange(attained=1.1)]}, "attained must be from 0.001 to 1"),
        ({"exchanges": [exchange(busy=2)]}, "busy must be from 0 to 1"),
        ({"exchanges": [exchange(), exchange()]}, "exchanges must stand in growing order"),
        (
            {"exchanges": [exchange(), exchange(devices=20)]},
            "20 devices are no whole number of circ",
        ),
        (
            {"exchanges": [exchange(protocols=[PROTOCOL]), exchange(devices=16)]},
            "all must have protocols of the same names",
        ),
        (
            {"exchanges": [exchange(protocols=[{**PROTOCOL, "ring": 11}])]},
            r"protocols\[0\]: ring must be from 0 to 10",
        ),
        (
            {"exchanges": [exchange(multicast={"bandwidth": 1e9})]},
            "multicast: field 'latency' is missing",
        ),
        ({"tiled": {**TILED, "splits": [2]}}, "tiled: splits must be .*, 1 among them"),
        ({"tiled": {**TILED, "splits": [1, 0]}}, "tiled: splits must be .* from 1 to 64"),
        ({"tiled": {**TILED, "splits": [True]}}, "tiled: splits must be .* from 1 to 64"),
        ({"tiled": {**TILED, "splits": 1}}, "tiled: splits must be"),
        ({"tiled": {**TILED, "tiles": []}}, "tiles must be a list of 1 to 64"),
        ({"tiled": {**TILED, "tiles": [{**TILE, "rows": 0}]}}, r"tiles\[0\]: rows must be from 1"),
        ({"spread": 0.2}, "spread must be from 0 to 0.1"),
        ({"attained": 0.5}, "attained: expected an object, found 0.5"),
        ({"attained": {"matrix": 2}}, "attained: matrix must be from 0.001 to 1"),
        ({"attained": {"x": 1}}, "attained: unknown field 'x'"),
        ({"program_bytes": -1}, "program_bytes must be from 0"),
        ({"program_bytes": 1 << 50}, "program_bytes are more than the memory has"),
    ],
)
def test_what_no_machine_could_be_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(MachineError, match=message):
        read({**fields(), **change})


def test_any_value_anywhere_is_read_or_refused() -> None:
    """Reading raises no error but MachineError, whatever stands in a place of the file."""
    generator = random.Random(0)
    values = (None, True, -1, 0, 1, 2.5, 1e999, -1e-9, 10**30, "", "cpu", "f32", [], {}, [{}], [1])
    written = [write_machine(machine_named(name)) for name in SHIPPED]
    for _ in range(600):
        found = json.loads(generator.choice(written))
        place = found
        while True:
            key = generator.choice(list(place) if isinstance(place, dict) else range(len(place)))
            if not isinstance(place[key], (dict, list)) or generator.random() < 0.3:
                break
            place = place[key]
        place[key] = generator.choice(values)
        with suppress(MachineError):
            read(found)


def test_an_element_type_that_is_none_is_refused() -> None:
    rates = {**fields()["rates"], "f99": {}}
    with pytest.raises(MachineError, match="no element type is named 'f99'"):
        read({**fields(), "rates": rates})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"{", "no machine description in JSON"),
        (b"\xff\xfe", "no machine description in JSON"),
        (b"[" * 60_000, "no machine description in JSON"),
        (b'{"a": 1, "a": 1}', "a field is given twice"),
        (b'{"format": NaN}', "NaN is not a number"),
        (b'{"format": 1e999}', "format must be from 1 to"),
        (b" " * (MAX_BYTES + 1), "bytes, more than"),
        (b"[]", "expected an object"),
    ],
)
def test_what_is_no_description_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(MachineError, match=message):
        read_machine(data, "m.json")


@pytest.mark.parametrize(
    "name", ["mine{node=2}", "a,b", "}", "red\x1b[31m", "two\nlines", " mine", "\u202eenim"]
)
def test_names_that_options_cannot_pass_are_refused(name: str) -> None:
    """Options such as `--machine NAME{node=2}` refer to a machine by its name, and terminals show it."""
    with pytest.raises(MachineError, match=r"m\.json: name must be printable, without ") as told:
        read({**fields(), "name": name})
    assert str(told.value).isprintable()


@pytest.mark.parametrize("place", ["source", "levels", "exchanges"])
def test_texts_that_garble_a_terminal_are_refused(place: str) -> None:
    found = fields()
    if place == "source":
        found["source"] = "here\x1b[2J"
    else:
        found[place][0]["name"] = "here\x1b[2J"
    with pytest.raises(MachineError, match=r"(source|name) must be printable, found 'here"):
        read(found)


def test_a_name_stands_for_one_description() -> None:
    mine = read({**fields(), "name": "test-machine", "units": 2})
    assert with_own_name(mine) is mine
    assert machine_named("test-machine", (mine,)) is mine
    assert machine_named("test-machine{links=0.5}", (mine,)) == mine.with_links(0.5)
    shipped = machine_named(DEFAULT)
    # Where figures come from changes nothing for a program that is compiled for them.
    elsewhere = replace(shipped, source="elsewhere")
    assert with_own_name(elsewhere) is elsewhere
    other = replace(shipped, units=3)
    with pytest.raises(MachineError, match="two machines named") as told:
        with_own_name(other)
    assert f"{shipped.digest} and {other.digest}" in str(told.value)


def test_descriptions_that_a_caller_has_read_are_known_to_it_alone() -> None:
    mine = read({**fields(), "name": "test-machine"})
    with pytest.raises(
        MachineError, match=r"no machine is named 'nobody'; there are .*cpu-avx512, .*test-machine"
    ):
        machine_named("nobody", (mine,))
    with pytest.raises(MachineError, match=r"no machine is named 'test-machine'"):
        machine_named("test-machine")
