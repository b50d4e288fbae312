"""The comparison with expected outputs: tolerances, sampled outputs, nan and infinity."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from launch.checks.expect import Expected, Tolerance, check_output, default_tolerance, read_expected
from launch.data.inputs import InputError
from spmd.shape import PrimitiveType, array

F32 = array(PrimitiveType.F32, 2)


def expected(values: list[float], atol: float = 0.0, rtol: float = 0.0) -> Expected:
    return Expected(
        "out0",
        array(PrimitiveType.F32, len(values)),
        np.array(values, np.float32),
        Tolerance(atol, rtol),
    )


def test_tolerance_is_atol_plus_rtol_of_the_wanted_value() -> None:
    want = expected([100.0, 0.0], atol=0.5, rtol=0.01)
    assert check_output(np.array([101.5, 0.5], np.float32), want).ok
    assert not check_output(np.array([101.6, 0.0], np.float32), want).ok
    assert not check_output(np.array([100.0, 0.6], np.float32), want).ok
    far = check_output(np.array([103.0, 0.0], np.float32), want)
    assert far.of_tolerance == pytest.approx(2.0)
    assert far.max_abs_diff == pytest.approx(3.0)
    assert far.max_rel_diff == pytest.approx(0.03)


@pytest.mark.parametrize(
    ("got", "want", "ok"),
    [
        (np.nan, np.nan, True),
        (np.inf, np.inf, True),
        (-np.inf, np.inf, False),
        (np.nan, 1.0, False),
        (1.0, np.nan, False),
        (np.inf, 1e30, False),
        (1e30, np.inf, False),
    ],
)
def test_values_that_are_not_finite(got: float, want: float, ok: bool) -> None:
    check = check_output(np.array([got], np.float32), expected([want], atol=1e30, rtol=1.0))
    assert check.ok is ok


def test_numbers_that_a_flush_to_zero_may_have_made_zero_are_near_it() -> None:
    """3 times the least normal f32, beside 2e-34; f16 has no such numbers, since none of its own are flushed."""
    want = np.array([2e-34, 3 * 2.0**-126], np.float32)
    for got, ok in ((0.0, True), (100 * 2.0**-126, False)):
        wanted = Expected("", F32, want, default_tolerance(PrimitiveType.F32, want))
        assert check_output(np.array([2e-34, got], np.float32), wanted).ok is ok
    assert default_tolerance(PrimitiveType.F16, np.zeros(2, np.float16)).atol == 0


def test_integers_must_be_equal_even_beyond_what_a_float_holds() -> None:
    kind = PrimitiveType.U64
    want = Expected("out0", array(kind, 1), np.array([2**63 + 1], np.uint64), Tolerance(0.0, 0.0))
    assert check_output(np.array([2**63 + 1], np.uint64), want).ok
    assert not check_output(np.array([2**63], np.uint64), want).ok


def test_case_description_gives_names_and_tolerances_and_the_caller_overrides(
    tmp_path: Path,
) -> None:
    np.savez(tmp_path / "expected.npz", out0=np.ones(2, np.float32))
    description = {"outputs": [{"name": "['loss']", "atol": 0.25, "rtol": 0.125}]}
    (tmp_path / "case.json").write_text(json.dumps(description))
    (read,) = read_expected(tmp_path / "expected.npz", [F32])
    assert (read.name, read.tolerance) == ("out0['loss']", Tolerance(0.25, 0.125))
    (read,) = read_expected(tmp_path / "expected.npz", [F32], atol=0.0)
    assert read.tolerance == Tolerance(0.0, 0.125)


def test_sampled_outputs_compare_at_their_positions(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "e.npz", out0_idx=np.array([1, 3]), out0_val=np.array([10.0, 30.0], np.float32)
    )
    (want,) = read_expected(
        tmp_path / "e.npz", [array(PrimitiveType.F32, 2, 2)], atol=0.0, rtol=0.0
    )
    assert check_output(np.array([[7, 10], [7, 30]], np.float32), want).ok
    assert not check_output(np.array([[7, 10], [7, 31]], np.float32), want).ok


def test_bf16_bits_are_read_as_values(tmp_path: Path) -> None:
    np.savez(tmp_path / "e.npz", out0=np.array([0x3F80], np.uint16))
    (want,) = read_expected(tmp_path / "e.npz", [array(PrimitiveType.BF16, 1)])
    assert check_output(np.array([1.0], ml_dtypes.bfloat16), want).ok
    assert not check_output(np.array([1.25], ml_dtypes.bfloat16), want).ok


def test_positional_arrays_of_numpy_are_outputs(tmp_path: Path) -> None:
    np.savez(tmp_path / "e.npz", np.zeros(2, np.float32), np.ones(2, np.float32))
    wanted = read_expected(tmp_path / "e.npz", [F32, F32])
    assert [(one.name, one.values.tolist()) for one in wanted] == [
        ("out0", [0, 0]),
        ("out1", [1, 1]),
    ]


def test_wrong_number_of_outputs_says_both(tmp_path: Path) -> None:
    np.savez(tmp_path / "e.npz", out0=np.ones(2, np.float32), out1=np.ones(2, np.float32))
    with pytest.raises(InputError, match="holds 2 outputs, the module has 1"):
        read_expected(tmp_path / "e.npz", [F32])


def test_every_copied_case_is_readable(cases: Path) -> None:
    for folder in sorted(path.parent for path in cases.glob("*/case.json")):
        outputs = json.loads((folder / "case.json").read_text())["outputs"]
        shapes = [array(PrimitiveType(o["dtype"]), *o["shape"]) for o in outputs]
        for want in read_expected(folder / "expected.npz", shapes):
            assert want.tolerance.atol >= 0
            assert check_output(want.values, want).ok
