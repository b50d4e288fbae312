"""XLA reads what we write as the program that it reads from the text, and we read what XLA writes (`jax` extra).

Of more texts: python -m tests.spmd.proto.against_jaxlib FOLDER
"""

from __future__ import annotations

import pytest

from tests.paths import CASES
from tests.spmd.proto.against_jaxlib import SAME, outcome
from tests.spmd.proto.examples import TEXTS

pytest.importorskip("jaxlib", reason="XLA's reader comes with the jax extra")

MODULES = sorted(CASES.glob("*/*.hlo"))
ALL = {f"{path.parent.name}-{path.stem}": path.read_text() for path in MODULES} | TEXTS


@pytest.mark.parametrize("name", ALL)
def test_protos_say_what_texts_say(name: str) -> None:
    """Elided constants are left out, since XLA's text reader invents values for them."""
    text = "\n".join(line for line in ALL[name].splitlines() if "{...}" not in line)
    assert outcome(text) == SAME
