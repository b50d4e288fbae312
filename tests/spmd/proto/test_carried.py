"""Tests that protos carry what texts do not say, and that texts' compile options go with the configuration."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from same_module import assert_same_module

import spmd
from spmd.errors import HloParseError
from spmd.hlo import HloModule
from spmd.hlo.carried import NOTHING_CARRIED, CarriedHeader, CrossProgramPrefetch
from spmd.hlo.clone import clone_module
from spmd.proto.reader import parse_proto
from spmd.proto.schema.config import HloModuleProtoWithConfig
from spmd.proto.schema.hlo import HloModuleProto
from spmd.proto.schema.xla_data import OpMetadataProto, PayloadProto
from spmd.proto.writer import serialize, serialize_hlo_proto, serialize_with_config
from spmd.sharding import HloSharding
from spmd.text.sharding.sharding_text import parse_sharding

HEADER = (
    "HloModule m, alias_passthrough_params=true, entry_computation_layout={(f32[8]{0}, f32[8]{0})->f32[8]{0}}, "
    "allow_spmd_sharding_propagation_to_parameters={true,false}, "
    "allow_spmd_sharding_propagation_to_output={true}, replica_count=2, num_partitions=4"
)
BODY = """

ENTRY e {
  a = f32[8]{0} parameter(0)
  b = f32[8]{0} parameter(1)
  ROOT c = f32[8]{0} add(a, b)
}
"""
#: A table as XLA prints it: the recovery module's text is a string of several lines.
TABLE = """origin_recovery_table={
  {"constant"} : {"constant__ovp0" {1,0}},
  "
    HloModule recovery_module, entry_computation_layout={(s32[2,3]{1,0})->s32[2,3]{1,0}}

    ENTRY %recovery (param: s32[2,3]) -> s32[2,3] {
      %param = s32[2,3]{1,0} parameter(0), sharding={maximal device=0}
      ROOT %copy = s32[2,3]{1,0} copy(%param), metadata={op_name='f(\\"x\\")'}
    }

  "
  {"x"} : {"y"}
}
"""
CARRIED = CarriedHeader(
    cross_program_prefetches=(CrossProgramPrefetch(1, (), 4096), CrossProgramPrefetch(0)),
    is_dynamic=True,
    output_sharding=HloSharding.replicated(),
    parameter_shardings=(parse_sharding("{devices=[2,2]<=[4]}"), HloSharding.replicated()),
    use_auto_spmd_partitioning=True,
    profiles=(b"\x08\x03\x2a\x03abc",),
    device_type="TPU v7",
    device_ids=((3, 7), (2, 6), (1, 5), (0, 4)),
)


def module(text: str = HEADER + BODY) -> HloModule:
    return spmd.parse(text)


def edited(change: Callable[[HloModuleProto], None]) -> bytes:
    proto = HloModuleProto(serialize(module()))
    change(proto)
    return bytes(proto)


def test_the_configuration_goes_with_the_module() -> None:
    again = parse_proto(serialize_with_config(module()))
    assert_same_module(again, module())
    assert str(again) == str(module())
    assert serialize_with_config(again) == serialize_with_config(module())


def test_a_bare_module_loses_the_configuration_but_the_counts() -> None:
    again = parse_proto(serialize(module()))
    assert (again.replica_count, again.num_partitions, again.extra_header) == (2, 4, ())


def test_defaults_are_left_unsaid() -> None:
    plain = module(HEADER.split(",")[0] + ", num_partitions=1" + BODY)
    again = parse_proto(serialize_with_config(plain))
    assert (again.extra_header, again.num_partitions, again.replica_count) == ((), 1, 1)
    config = HloModuleProtoWithConfig(serialize_with_config(plain)).config
    assert config is not None
    assert config.allow_spmd_sharding_propagation_to_parameters == (False,)
    assert not config.use_spmd_partitioning


def test_flags_that_are_none_cannot_be_written() -> None:
    strange = module()
    strange.extra_header = (("allow_spmd_sharding_propagation_to_output", "{maybe}"),)
    with pytest.raises(HloParseError, match="expected true or false, found 'maybe'"):
        serialize_with_config(strange)


@pytest.mark.parametrize("write", [serialize, serialize_hlo_proto, serialize_with_config])
def test_fields_that_no_text_has_come_back(write: Callable[[HloModule], bytes]) -> None:
    original = module()
    original.carried = CARRIED
    again = parse_proto(write(original))
    assert again.carried == CARRIED
    assert str(again).splitlines()[2:] == str(original).splitlines()[2:]
    assert clone_module(again).carried == CARRIED


def test_device_ids_of_another_count_give_way_to_the_usual_ones() -> None:
    original = module()
    original.carried = CARRIED
    original.num_partitions = 2
    assert parse_proto(serialize(original)).carried.device_ids == ()
    assert parse_proto(serialize(module())).carried == NOTHING_CARRIED


def _short_assignment(proto: HloModuleProto) -> None:
    devices = proto.device_assignment
    assert devices is not None
    devices.computation_devices = list(devices.computation_devices)[:2]
    proto.device_assignment = devices


def test_an_assignment_lists_every_device() -> None:
    with pytest.raises(HloParseError, match="does not list 4 partitions x 2 replicas"):
        parse_proto(edited(_short_assignment))


# ---- metadata
def with_metadata(metadata: OpMetadataProto, payloads: tuple[bytes, ...] = ()) -> bytes:
    def change(proto: HloModuleProto) -> None:
        computation = proto.computations[0]
        instructions = list(computation.instructions)
        instructions[2].metadata = metadata
        computation.instructions = instructions
        proto.computations = [computation]
        proto.payloads = payloads

    return edited(change)


def test_sizes_of_code_and_profiles_come_back() -> None:
    metadata = OpMetadataProto()
    metadata.size_of_generated_code_in_bytes = 1 << 40
    metadata.size_of_memory_working_set_in_bytes = 5
    metadata.profile_info = b"\x0a\x01\x02\x11" + b"\0" * 8
    read = parse_proto(with_metadata(metadata))
    assert str(read) == str(parse_proto(serialize(module())))
    again = HloModuleProto(serialize(read)).computations[0].instructions[2].metadata
    assert again is not None
    assert bytes(again) == bytes(metadata)
    metadata.op_name = "f"
    assert 'metadata={op_name="f"}' in str(parse_proto(with_metadata(metadata)))


def test_metadata_refers_to_the_modules_payloads() -> None:
    metadata, payload = OpMetadataProto(), PayloadProto()
    payload.id = 1
    metadata.metadata_payload = payload
    read = parse_proto(with_metadata(metadata, (b"no", b"caf\xc3\xa9")))
    assert read.entry.root.annotations.metadata.extra == (("metadata_payload", r'"caf\303\251"'),)
    assert parse_proto(serialize(read)).entry.root.annotations == read.entry.root.annotations
    with pytest.raises(HloParseError, match="payload 1 of 1"):
        parse_proto(with_metadata(metadata, (b"no",)))


@pytest.mark.parametrize("number", [4, -1])
def test_profile_types_are_those_of_the_enumeration(number: int) -> None:
    metadata = OpMetadataProto()
    metadata.profile_type = (1, number)
    with pytest.raises(HloParseError, match=f"unknown profile type {number}"):
        parse_proto(with_metadata(metadata))
    text = BODY.replace("add(a, b)", f"add(a, b), metadata={{profile_type={{1,{number}}}}}")
    with pytest.raises(HloParseError, match="0 to 3"):
        spmd.parse(text)


# ---- recovered values
def test_tables_of_recovered_values_come_back() -> None:
    original = module(f"{HEADER}, {TABLE}{BODY}")
    once = parse_proto(serialize_with_config(original))
    twice = parse_proto(serialize_with_config(once))
    assert_same_module(twice, once)
    assert serialize(spmd.parse(str(once))) == serialize(original)
    table = HloModuleProto(serialize(once)).original_value_recovery_table
    assert table is not None
    first, second = table.entries
    assert first.new_array is not None
    assert (first.new_array.instruction_name, first.new_array.shape_index) == (
        "constant__ovp0",
        (1, 0),
    )
    assert first.recovery_module is not None
    recovery = parse_proto(bytes(first.recovery_module))
    assert recovery.entry.root.annotations.metadata.op_name == 'f("x")'
    assert second.recovery_module is None


def test_tables_do_not_nest() -> None:
    proto = HloModuleProto(serialize(module(f"{HEADER}, {TABLE}{BODY}")))
    table = proto.original_value_recovery_table
    assert table is not None
    entry = table.entries[0]
    entry.recovery_module = HloModuleProto(bytes(proto))
    table.entries = [entry]
    proto.original_value_recovery_table = table
    with pytest.raises(HloParseError, match="has such a table itself"):
        parse_proto(bytes(proto))


def test_a_table_that_is_none_cannot_be_written() -> None:
    broken = module()
    broken.extra_header = (("origin_recovery_table", '{{"a"} : {"b"}, "HloModule"}'),)
    with pytest.raises(HloParseError, match="in the table of recovered values"):
        serialize(broken)


def test_xla_carries_the_same() -> None:
    pytest.importorskip("jaxlib", reason="XLA's reader comes with the jax extra")
    from jaxlib import _hlo

    original = module(f"{HEADER}, {TABLE}{BODY}")
    original.carried = CARRIED
    theirs = _hlo.HloModule.from_serialized_hlo_module_proto(serialize(original))
    again = parse_proto(theirs.as_serialized_hlo_module_proto())
    assert again.carried == CARRIED
    assert again.extra_header == parse_proto(serialize(original)).extra_header
