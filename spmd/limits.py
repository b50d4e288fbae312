"""Limits of inputs: they bound the time and memory that untrusted text, protos and modules can take.

Everything else grows linearly with the bytes that were given. A text or proto beyond a limit is refused by an error
that names the limit; none of them is met by programs that JAX writes.
"""

from __future__ import annotations

from typing import Final

#: Deepest nesting of brackets, tuple shapes, literals and operands written in place; recursion stays bounded.
MAX_NESTING: Final = 100

#: Deepest nesting of computations written in place (``to_apply={...}``): each level takes several frames.
MAX_INLINE_NESTING: Final = 25

#: Most dimensions of an array or of a device grid: NumPy's own limit.
MAX_RANK: Final = 64

#: Largest dimension size, as in XLA, whose sizes are signed 64-bit integers.
MAX_SIZE: Final = 2**63 - 1

#: Most leaves of a tuple shape, counted with repetition: ``tuple(x, x)`` doubles them in a few bytes of text.
MAX_LEAVES: Final = 1 << 16

#: What all of one text may imply without spelling it out: leaves of left-out tuple shapes, ids of device lists in iota
#: form. Beyond what it spells out, a text costs no more than this.
MAX_IMPLIED: Final = 1 << 17

#: Zeros that all constants of one text may imply, as ``f32[4096,4096] constant(0)``: memory untouched until read.
MAX_ZEROS: Final = 1 << 26

#: Most device ids that are ever written out one by one; the iota and mesh forms above it stay symbolic.
MAX_DEVICES: Final = 1 << 20

#: Bytes that compressed data may unpack to: a thousandth of it is enough to say so much.
MAX_INFLATED: Final = 1 << 28

#: Replicas or partitions a header may state.
MAX_COUNT: Final = 2**31 - 1

#: Instructions of a program in which each call, loop and branch has its own: calls of calls double them in a few bytes.
MAX_UNSHARED: Final = 1 << 18

#: Errors reported for one text and violations for one module; reading stops after so many.
MAX_ERRORS: Final = 20

#: Instructions with an error, reported or following from a reported one, behind which reading goes on.
MAX_SKIPPED: Final = 1_000

#: Characters behind an error in which reading looks for the end of the instruction.
MAX_LOOKAHEAD: Final = 4_000

#: Characters of an input's line, or of an instruction, that a message shows.
MAX_EXCERPT: Final = 200
