"""Limits of inputs: they bound the time and memory of untrusted texts, protos and modules.

All other costs grow linearly with the size of the input. A text or proto beyond a limit is refused by an error that
names the limit; programs written by JAX reach none of them.
"""

from __future__ import annotations

from typing import Final

#: Deepest nesting of brackets, tuple shapes, literals and operands written in place: bounds the recursion.
MAX_NESTING: Final = 100

#: Deepest nesting of computations written in place (``to_apply={...}``): each level takes several frames.
MAX_INLINE_NESTING: Final = 25

#: Most dimensions of an array or of a device grid: NumPy's own limit.
MAX_RANK: Final = 64

#: Largest dimension size, as in XLA, whose sizes are signed 64-bit integers.
MAX_SIZE: Final = 2**63 - 1

#: Most leaves of a tuple shape, counted with repetition: ``tuple(x, x)`` doubles them in a few bytes of text.
MAX_LEAVES: Final = 1 << 16

#: Most items that one text may imply without spelling them out: leaves of left-out tuple shapes, ids of device lists in
#: iota form. It bounds the cost of a text beyond its length.
MAX_IMPLIED: Final = 1 << 17

#: Most zeros that all constants of one text may imply, as ``f32[4096,4096] constant(0)``: the memory is untouched until
#: read.
MAX_ZEROS: Final = 1 << 26

#: Most device ids that are written out one by one; the iota and mesh forms above it stay symbolic.
MAX_DEVICES: Final = 1 << 20

#: Most bytes to which compressed data may unpack: a thousandth of it can encode this many.
MAX_INFLATED: Final = 1 << 28

#: Most replicas or partitions that a header may state.
MAX_COUNT: Final = 2**31 - 1

#: Most instructions of a program in which each call, loop and branch has its own copy: nested calls double them in a
#: few bytes.
MAX_UNSHARED: Final = 1 << 18

#: Most errors reported for one text and violations for one module; reading stops after this many.
MAX_ERRORS: Final = 20

#: Most instructions with an error, reported or following from a reported one, after which reading continues.
MAX_SKIPPED: Final = 1_000

#: Most characters after an error that are searched for the end of the instruction.
MAX_LOOKAHEAD: Final = 4_000

#: Most characters of an input's line, or of an instruction, in a message.
MAX_EXCERPT: Final = 200
