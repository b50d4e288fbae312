"""rng-bit-generator in native code has the evaluator's bits: of every integer type, in odd shapes, over the carry."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.program.records.random_bits import RandomBitsKernel
from tests.runtime.programs.agreement import assert_agrees, kernels_of

TYPES = ("u8", "s16", "u32", "s64", "u64", "s4", "u2")
#: Shapes of one element, of none, of less than a block; odd in all dimensions, or even in one of several.
SHAPES = ("", "0", "1", "7", "1025", "3,4,0", "5,3", "4,3", "5,6,3", "9,1", "3,5,7")


def program(algorithm: str, words: int) -> str:
    lines, names, shapes = [], [], []
    for kind in TYPES:
        for number, shape in enumerate(SHAPES):
            name = f"{kind}_{number}"
            both = f"(u64[{words}], {kind}[{shape}])"
            lines.append(f"  {name} = {both} rng-bit-generator(s), algorithm={algorithm}")
            names.append(name)
            shapes.append(both)
    body = "\n".join(lines)
    return f"""HloModule random
    ENTRY main {{
      s = u64[{words}] parameter(0)
    {body}
      ROOT r = ({", ".join(shapes)}) tuple({", ".join(names)})
    }}
    """


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [("rng_three_fry", 2), ("rng_philox", 2), ("rng_philox", 3), ("rng_default", 3)],
)
def test_bits_and_states(algorithm: str, words: int) -> None:
    text = program(algorithm, words)
    last = np.full(words, 2**64 - 3, np.uint64)  # the counter wraps
    some = np.array([0x0123456789ABCDEF, 2**32 - 2, 7][:words], np.uint64)
    for state in (some, last):
        executable = assert_agrees(text, inputs=[state])
    assert {type(kernel) for kernel in kernels_of(executable)} == {RandomBitsKernel}


def test_bits_alone_of_a_state_that_is_a_view() -> None:
    text = """HloModule random
    ENTRY main {
      s = u64[6] parameter(0)
      t = u64[3] slice(s), slice={[0:6:2]}
      ROOT r = u32[5,2] rng-bit-generator(t), algorithm=rng_philox
    }
    """
    assert_agrees(text, inputs=[np.arange(6, dtype=np.uint64)])
