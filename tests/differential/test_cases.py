"""JAX's programs: the partitioned module equals the unpartitioned one, with nan in every tile's padding."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spmd
from spmd.hlo import HloModule
from tests.differential.equivalence import check_equivalence
from tests.paths import CASES

NAMES = sorted(path.parent.name for path in CASES.glob("*/case.json"))


def load_inputs(folder: Path, module: HloModule) -> list[np.ndarray[Any, np.dtype[Any]]]:
    """Types that NumPy lacks are stored as their bits."""
    with np.load(folder / "inputs.npz") as stored:
        return [
            stored[f"arg{i}"].view(p.array_shape.element_type.numpy)
            for i, p in enumerate(module.entry.parameters)
        ]


def test_there_are_cases() -> None:
    assert len(NAMES) >= 5


@pytest.mark.parametrize("name", NAMES)
def test_case(name: str) -> None:
    module = spmd.load(CASES / name / "module.hlo")
    case = json.loads((CASES / name / "case.json").read_text(encoding="utf-8"))
    check_equivalence(module, case["num_partitions"], load_inputs(CASES / name, module))
