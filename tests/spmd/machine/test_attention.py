"""Rates of fused attention."""

import json

import pytest

from spmd.analysis.attention_cost import AttentionShape
from spmd.machine.named import machine_named
from spmd.machine.reader import MachineError, read_machine, write_machine
from spmd.shape import PrimitiveType

BF16, F8, F32 = PrimitiveType.BF16, PrimitiveType.F8E4M3FN, PrimitiveType.F32
H100 = machine_named("dgx-h100").as_attained()
SUSTAINED = 0.899


@pytest.mark.parametrize(
    ("shape", "kind", "measured"),
    [
        (AttentionShape(128, 8192, causal=True), BF16, 529e12),
        (AttentionShape(128, 8192, backward=True), BF16, 518e12),
        (AttentionShape(64, 512), BF16, 335e12),
        (AttentionShape(256, 16384, causal=True), F8, 1099e12),
        # lengths beyond those that were measured, and depths between them
        (AttentionShape(128, 100, causal=True), BF16, 315e12),
        (AttentionShape(128, 1 << 20), BF16, 595e12),
        (AttentionShape(96, 2048), BF16, 617e12),
        (AttentionShape(80, 2048), BF16, 395e12),
    ],
)
def test_measured_rates(shape: AttentionShape, kind: PrimitiveType, measured: float) -> None:
    assert H100.attention_rate(kind, shape) == pytest.approx(SUSTAINED * measured)


def test_lengths_between_are_interpolated_by_their_logarithm() -> None:
    between = H100.attention_rate(BF16, AttentionShape(128, 1448, causal=True))
    assert between == pytest.approx(SUSTAINED * (410e12 + 484e12) / 2, rel=1e-3)


def test_a_causal_backward_pass_loses_as_much_as_a_forward_pass() -> None:
    found = H100.attention_rate(BF16, AttentionShape(128, 8192, backward=True, causal=True))
    assert found == pytest.approx(SUSTAINED * 518e12 * 529 / 600)


def test_other_types_have_the_ratio_of_products() -> None:
    shape = AttentionShape(128, 2048)
    ratio = H100.product_rate(F32) / H100.product_rate(BF16)
    assert H100.attention_rate(F32, shape) == pytest.approx(
        H100.attention_rate(BF16, shape) * ratio
    )


def test_a_machine_without_measured_lengths_has_one_rate() -> None:
    a100 = machine_named("dgx-a100").as_attained()
    rates = {a100.attention_rate(BF16, AttentionShape(64, keys)) for keys in (128, 4096)}
    assert rates == {a100.rates_of(BF16).attention}


def test_a_table_is_written_as_it_was_read() -> None:
    h100 = machine_named("dgx-h100")
    again = read_machine(write_machine(h100).encode(), "again")
    assert again.fused_attention == h100.fused_attention
    assert again.digest == h100.digest


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("keys", [512, 512, 2048, 4096, 8192, 16384], "keys must grow"),
        ("keys", [512], "one for each of keys"),
        ("keys", [], "a list of 1 to"),
        ("keys", "512", "a list of 1 to"),
        ("attained", 1.5, "from 0.001 to 1"),
        ("series", [], "a list of 1 to"),
        ("source", 3, "source must be a string"),
    ],
)
def test_wrong_tables_are_refused(field: str, value: object, said: str) -> None:
    fields = json.loads(write_machine(machine_named("dgx-h100")))
    fields["fused_attention"][field] = value
    with pytest.raises(MachineError, match=said):
        read_machine(json.dumps(fields).encode(), "wrong")


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("type", "bf17", "no element type"),
        ("depth", 0, "from 1"),
        ("backward", 2, "from 0 to 1"),
        ("flops", [1e12] * 5 + [True], "must be a number"),
        ("flops", [1e12] * 7, "6 numbers"),
        ("type", "f32", "bf16 forward and backward"),
    ],
)
def test_wrong_series_are_refused(field: str, value: object, said: str) -> None:
    fields = json.loads(write_machine(machine_named("dgx-h100")))
    series = [
        one
        for one in fields["fused_attention"]["series"]
        if one["type"] == "bf16" and not one["causal"]
    ]
    fields["fused_attention"]["series"] = [series[0], series[-1]]
    series[0][field] = value
    with pytest.raises(MachineError, match=said):
        read_machine(json.dumps(fields).encode(), "wrong")
