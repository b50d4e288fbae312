"""Arrays in .npz files: what NumPy cannot store travels as bits; what does not fit is refused by name."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from launch.data.inputs import InputError, read_arrays, read_inputs, seeded_inputs, write_arrays
from spmd.shape import ArrayShape, PrimitiveType, array

TYPES = [kind for kind in PrimitiveType if kind.bits >= 8 or kind is PrimitiveType.PRED]


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_every_type_survives_a_file(kind: PrimitiveType, tmp_path: Path) -> None:
    shapes = [array(kind, 3, 5), ArrayShape(kind, ()), array(kind, 0, 2)]
    written = seeded_inputs(1, shapes)
    write_arrays(tmp_path / "x.npz", "arg", written)
    for got, want, shape in zip(
        read_inputs(tmp_path / "x.npz", shapes), written, shapes, strict=True
    ):
        assert got.dtype == kind.numpy
        assert got.shape == shape.dims
        assert got.tobytes() == want.tobytes()


def test_bf16_is_stored_as_the_bits_that_the_corpus_uses(tmp_path: Path) -> None:
    write_arrays(tmp_path / "x.npz", "out", [np.array([1.0, -2.0], ml_dtypes.bfloat16)])
    with np.load(tmp_path / "x.npz") as stored:
        assert stored["out0"].tolist() == [0x3F80, 0xC000]
        assert stored["out0"].dtype == np.uint16


def test_arrays_saved_directly_by_numpy_are_read(tmp_path: Path) -> None:
    """np.savez writes a bfloat16 array as raw two-byte elements."""
    value = np.array([1.5, 2.5], ml_dtypes.bfloat16)
    np.savez(tmp_path / "x.npz", arg0=value)
    (got,) = read_inputs(tmp_path / "x.npz", [array(PrimitiveType.BF16, 2)])
    assert got.tolist() == value.tolist()


def test_positional_arrays_of_numpy_are_read(tmp_path: Path) -> None:
    values = [np.full((2, 3), n, np.float32) for n in range(11)]
    np.savez(tmp_path / "x.npz", *values)
    got = read_inputs(tmp_path / "x.npz", [array(PrimitiveType.F32, 2, 3)] * 11)
    assert [one[0, 0] for one in got] == list(range(11))


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        ({"arr_0": np.zeros((2, 3), np.float64)}, r"arr_0 is float64\[2,3\], the module expects"),
        ({"arr_1": np.zeros(2)}, r"arg0 \(f32\[2,3\]\) is missing; the file holds arr_1"),
        (
            {"arr_0": np.zeros(2), "arg1": np.zeros(2)},
            r"arg0 \(f32\[2,3\]\) is missing; the file holds arg1, arr_0",
        ),
        ({"arg1": np.zeros(2)}, r"arg0 \(f32\[2,3\]\) is missing; the file holds arg1"),
        (
            {"arg0": np.zeros((3, 2), np.float32)},
            r"arg0 is float32\[3,2\], the module expects f32\[2,3\]",
        ),
        (
            {"arg0": np.zeros((2, 3), np.float64)},
            r"arg0 is float64\[2,3\], the module expects f32\[2,3\]",
        ),
        (
            {"arg0": np.zeros((2, 3), np.uint32)},
            r"arg0 is uint32\[2,3\], the module expects f32\[2,3\]",
        ),
        ({}, "the file is empty"),
    ],
)
def test_what_does_not_fit_is_named(
    stored: dict[str, np.ndarray], message: str, tmp_path: Path
) -> None:
    np.savez(tmp_path / "x.npz", **stored)
    with pytest.raises(InputError, match=message):
        read_arrays(tmp_path / "x.npz", "arg", [array(PrimitiveType.F32, 2, 3)])


def test_a_file_that_is_no_npz_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_text("HloModule m")
    with pytest.raises(InputError, match=r"not a readable \.npz file"):
        read_inputs(tmp_path / "x.npz", [])
    with pytest.raises(InputError, match=r"not a readable \.npz file"):
        read_inputs(tmp_path / "missing.npz", [])


def test_objects_in_a_file_are_not_unpickled(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", arg0=np.array([{"a": 1}], dtype=object))
    with pytest.raises(InputError, match=r"not a readable \.npz file"):
        read_inputs(tmp_path / "x.npz", [array(PrimitiveType.F32, 1)])


def test_seeds_are_reproducible_and_differ_by_argument() -> None:
    shapes = [array(PrimitiveType.F32, 4)] * 2
    first, second = seeded_inputs(3, shapes)
    assert np.array_equal(first, seeded_inputs(3, shapes)[0])
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, seeded_inputs(4, shapes)[0])
