"""The checker's own definition of tiles: against JAX's device ids and specs, by hand, and there and back."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.differential.tiling import (
    Tiling,
    TilingError,
    gather,
    mesh_tiling,
    read_tiling,
    scatter,
    split_tuple,
)

HERE = Path(__file__).parent
#: Beside the project, where the whole corpus lies; the extract in this folder is always checked.
CORPUS = HERE.parents[2] / "shared" / "corpus"


def extract() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(
        (HERE / "corpus_tilings.json").read_text(encoding="utf-8")
    )
    return found


def whole_corpus() -> Iterator[dict[str, Any]]:
    for path in sorted(CORPUS.glob("*/case.json")):
        case = json.loads(path.read_text(encoding="utf-8"))
        mesh = case.get("mesh")
        if not mesh:
            continue
        for argument in case["args"]:
            if argument.get("gspmd") and argument.get("spec"):
                yield {
                    "mesh": dict(zip(mesh["axes"], mesh["shape"], strict=True)),
                    "device_ids": mesh["device_ids"],
                    "shape": argument["shape"],
                    "spec": argument["spec"],
                    "gspmd": argument["gspmd"],
                }


def axes_of(spec: str, rank: int) -> list[tuple[str, ...]]:
    """``P(('a', 'b'), None)`` as axes per dimension; dimensions left out are whole."""
    entries = ast.literal_eval(spec.removeprefix("P")) if spec != "P()" else ()
    dims = [(e,) if isinstance(e, str) else tuple(e or ()) for e in entries]
    return dims + [()] * (rank - len(dims))


def agrees(row: dict[str, Any]) -> bool:
    dims = axes_of(row["spec"], len(row["shape"]))
    from_spec = mesh_tiling(row["mesh"], dims, row["device_ids"])
    from_text = read_tiling(row["gspmd"], len(row["shape"]), len(row["device_ids"]))
    return from_spec == from_text


def test_jax_specs_and_gspmd_texts_give_the_same_tiles() -> None:
    rows = extract()
    assert len(rows) > 100
    assert [row for row in rows if not agrees(row)] == []


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the whole corpus is not beside the project")
def test_whole_corpus() -> None:
    rows = list(whole_corpus())
    assert len(rows) > 100
    assert [row for row in rows if not agrees(row)] == []


@pytest.mark.parametrize(
    ("text", "rank", "tile_of"),
    [
        ("{devices=[2,2]0,2,1,3}", 2, ((0, 0), (1, 0), (0, 1), (1, 1))),
        ("{devices=[2,2]<=[2,2]T(1,0)}", 2, ((0, 0), (1, 0), (0, 1), (1, 1))),
        ("{devices=[4,1]<=[2,2]T(1,0)}", 2, ((0, 0), (2, 0), (1, 0), (3, 0))),
        ("{devices=[2,2]<=[4] last_tile_dim_replicate}", 1, ((0,), (0,), (1,), (1,))),
        ("{devices=[2,2]<=[4] last_tile_dims={replicated}}", 1, ((0,), (0,), (1,), (1,))),
        ("{replicated}", 1, ((0,),) * 4),
        ("{maximal device=2}", 1, (None, None, (0,), None)),
    ],
)
def test_reads(text: str, rank: int, tile_of: tuple[Any, ...]) -> None:
    assert read_tiling(text, rank, 4).tile_of == tile_of


@pytest.mark.parametrize(
    "text",
    [
        "{manual}",
        "{devices=[2,2]<=[4] last_tile_dims={manual}}",
        "{devices=[2]<=[2]}",
        "{devices=[4]0,1,2,2}",
        "{devices=[2,2]<=[4]}",
        "None",
    ],
)
def test_refuses(text: str) -> None:
    with pytest.raises(TilingError):
        read_tiling(text, 1, 4)


def test_splits_tuples() -> None:
    text = "{{replicated}, {devices=[2,2]<=[4] last_tile_dims={replicated}}, {manual}}"
    assert split_tuple(text) == [
        "{replicated}",
        "{devices=[2,2]<=[4] last_tile_dims={replicated}}",
        "{manual}",
    ]
    assert split_tuple("{replicated}") == ["{replicated}"]


def test_nine_over_four() -> None:
    """Tiles of 3: the last device holds padding alone, which is nan."""
    tiling = read_tiling("{devices=[4]<=[4]}", 1, 4)
    parts = scatter(np.arange(9.0), tiling)
    assert [part.tolist() for part in parts[:3]] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert np.isnan(parts[3]).all()
    assert tiling.region(3, (9,)) == (slice(9, 9),)


@pytest.mark.parametrize("dims", [(9, 4), (1, 2), (0, 3), (5, 5)])
def test_scatter_then_gather(dims: tuple[int, ...]) -> None:
    tiling = read_tiling("{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}", 2, 8)
    whole = np.arange(np.prod(dims), dtype=np.float32).reshape(dims)
    found, disagreements = gather(scatter(whole, tiling), tiling, dims)
    assert disagreements == []
    assert np.array_equal(found, whole)


def test_copies_that_differ_are_named() -> None:
    tiling = Tiling.replicated(1, 2)
    _, disagreements = gather([np.zeros(2), np.ones(2)], tiling, (2,))
    assert disagreements == ["devices 0 and 1 hold different tiles (0,)"]
