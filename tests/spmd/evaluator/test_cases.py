"""Whole JAX programs: the unpartitioned evaluation gives what XLA gave."""

from __future__ import annotations

import json

import numpy as np
import pytest

from spmd.evaluator import evaluate
from spmd.shape import PrimitiveType
from spmd.text.parser import parse_module
from tests.paths import CASES

NAMES = sorted(p.name for p in CASES.iterdir() if p.is_dir())


def load(file, prefix, descriptions):
    """Arrays prefix0, prefix1, ... with the element types that NumPy's own format cannot name."""
    with np.load(file) as stored:
        raw = [stored[f"{prefix}{i}"] for i in range(len(descriptions))]
    kinds = [PrimitiveType(d["dtype"]).numpy for d in descriptions]
    return [x if x.dtype == k else x.view(k) for x, k in zip(raw, kinds, strict=True)]


@pytest.mark.parametrize("name", NAMES)
def test_case(cases, name):
    folder = cases / name
    case = json.loads((folder / "case.json").read_text())
    inputs = load(folder / "inputs.npz", "arg", case["args"])
    expected = load(folder / "expected.npz", "out", case["outputs"])
    outputs = evaluate(parse_module((folder / "module.hlo").read_text()), *inputs)
    for got, want, out in zip(outputs, expected, case["outputs"], strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        if PrimitiveType(out["dtype"]).is_floating or PrimitiveType(out["dtype"]).is_complex:
            wide = (
                np.promote_types(np.float64, np.result_type(got.dtype))
                if got.dtype.kind == "c"
                else np.float64
            )
            np.testing.assert_allclose(
                got.astype(wide),
                want.astype(wide),
                rtol=out["rtol"],
                atol=out["atol"],
                err_msg=out["name"],
            )
        else:
            np.testing.assert_array_equal(got, want, err_msg=out["name"])
