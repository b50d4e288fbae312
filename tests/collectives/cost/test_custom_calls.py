"""Custom calls: by rule, as registered, as a file says, or an error that says what to do."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from collectives.cost.custom_calls import CallCost, read_call_cost
from collectives.cost.device_time import DeviceTime
from collectives.cost.estimator import CostError
from spmd.errors import SpmdError
from spmd.hlo import HloInstruction
from spmd.machine.named import machine_named
from spmd.ops.opdef import OpCost
from spmd.shape import PrimitiveType
from spmd.text.parser import parse_module

H100 = machine_named("dgx-h100").as_attained()
BEGIN = H100.thunk_seconds + H100.kernel_seconds
HBM = H100.levels[-1].bandwidth
FORWARD = """(bf16[2,8192,64,128], f32[2,64,8192,1]) custom-call(q, k, k),
    custom_call_target="te_fused_attn_forward_ffi", backend_config={mask_type = 3 : i64}"""


def call(text: str) -> HloInstruction:
    return parse_module(f"""
HloModule m
ENTRY e {{
  q = bf16[2,8192,64,128] parameter(0)
  k = bf16[2,8192,8,128] parameter(1)
  s = bf16[4096,8] parameter(2)
  f = f32[1000,1000] parameter(3)
  ROOT r = {text}
}}""").entry.root


def seconds(text: str, **given: CallCost) -> float:
    return DeviceTime(H100, given).seconds(call(text))


def test_fused_attention_goes_at_its_own_rate() -> None:
    """Half of 4 b h s s d flops under a causal mask, at the rate that was measured for this length and depth."""
    flops = 4 * 2 * 64 * 8192 * 8192 * 128 / 2
    assert seconds(FORWARD) == pytest.approx(BEGIN + flops / (0.899 * 5.29e14))


def test_top_k_reads_its_operand() -> None:
    found = seconds('(bf16[4096,2], s32[4096,2]) custom-call(s), custom_call_target="TopK"')
    assert BEGIN < found < 2 * BEGIN


def test_a_registered_target() -> None:
    found = seconds('f32[1000,1000] custom-call(f), custom_call_target="lapack_spotrf_ffi"')
    rate = H100.rates_of(PrimitiveType.F32).matrix
    assert found == pytest.approx(
        BEGIN + max(1e9 / 3 / rate, 8e6 / H100.shared_levels[0].bandwidth)
    )


@pytest.mark.parametrize("target", ["MoveToHost", "MoveToDevice"])
def test_a_move_takes_its_bytes_over_the_link_of_the_host(target: str) -> None:
    move = f'f32[1000,1000] custom-call(f), custom_call_target="{target}"'
    assert seconds(move) == pytest.approx(H100.thunk_seconds + 4e6 / 5.1e10)
    assert seconds(move, **{target: CallCost(0.5)}) == 0.5
    one_memory = replace(H100, host_bandwidth=0.0)
    assert DeviceTime(one_memory, {}).seconds(call(move)) == 0.0


UNKNOWN = 'f32[1000,1000] custom-call(f), custom_call_target="mine"'


def test_an_unknown_target_says_what_to_do() -> None:
    with pytest.raises(
        CostError, match=r"custom call of 'mine' is unknown; state it by --cost mine=F"
    ):
        seconds(UNKNOWN)


def test_schedules_count_the_bytes_of_an_unknown_target() -> None:
    time = DeviceTime(H100, {}, unknown_by_bytes=True)
    bandwidth = H100.shared_levels[0].bandwidth
    assert time.seconds(call(UNKNOWN)) == pytest.approx(BEGIN + 8e6 / bandwidth)


def test_what_a_file_says_goes_before_any_rule() -> None:
    assert seconds(UNKNOWN, mine=read_call_cost(b'{"seconds": 0.25}', "f")) == 0.25
    assert seconds(FORWARD, te_fused_attn_forward_ffi=CallCost(1.0)) == 1.0
    read = read_call_cost(b'{"bytes": 1e12, "flops": 2}', "f")
    assert read == CallCost(None, OpCost(2.0, 0.0, 1e12))
    assert seconds(UNKNOWN, mine=read) == pytest.approx(BEGIN + 1e12 / HBM)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "f.json: expected seconds, or flops and bytes"),
        ("3", "f.json: expected an object, found 3"),
        ('{"seconds": -1}', "seconds must be from 0"),
        ('{"seconds": "1"}', "seconds must be a number"),
        ('{"seconds": 1, "flops": 1}', "unknown field 'flops'"),
        ('{"flops": 1e400}', "flops must be from 0"),
        ('{"tflops": 1}', "unknown field 'tflops'"),
        ("{", "f.json: no cost of a custom call in JSON"),
        (" " * 5000, "5000 bytes, more than 4096"),
    ],
)
def test_files_that_say_no_cost(text: str, message: str) -> None:
    with pytest.raises(CostError, match=message):
        read_call_cost(text.encode(), "f.json")


def test_any_bytes_are_a_cost_or_refused() -> None:
    generator = random.Random(0)
    text = b'{"flops": 1e12, "bytes": 3e9, "transcendentals": 0}'
    for _ in range(500):
        data = bytearray(text)
        for _ in range(generator.randrange(1, 4)):
            data[generator.randrange(len(data))] = generator.choice(b'{}[]":,0123456789eE.-tn \xff')
        try:
            found = read_call_cost(bytes(data), "f.json")
        except SpmdError:
            continue
        assert 0 <= found.work.flops <= 1e30
