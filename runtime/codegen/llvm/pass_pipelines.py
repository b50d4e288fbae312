"""What is done to IR before machine code is made of it: all that LLVM has to offer, or what handwritten code needs."""

from __future__ import annotations

from enum import Enum
from typing import Any

import llvmlite.binding as llvm
from llvmlite.binding import Linkage

from runtime.codegen.llvm.parallel_compile import run_passes


class Passes(Enum):
    """How much of LLVM's time IR is worth. All of them inline what is marked ``alwaysinline``."""

    TIDY = "tidy"
    """Values leave the stack, instructions and branches are combined; loops stay as they are written. For code that is
    written as it is to run, its vectors included: a tenth of what the others take."""
    CALL = "call"
    """The same, and machine code is made without care, in a fifth of the time: for code that calls what does the work,
    such as that which goes from thunk to thunk: 15.7 ns a thunk instead of 14.7 (benchmarks/native/dispatch.py)."""
    VECTORIZE = "vectors"
    """Loops over elements become loops over vectors, none is unrolled: memory limits most of them. Where the processor
    has masks they are written so, and then only tidied (loops.py)."""
    UNROLL = "unroll"
    """And loops are unrolled: for those that compute more than they load."""

    def run(self, machine: Any, module: Any, *, variants: bool = False) -> None:
        """On the calling thread, which alone has ``machine`` and ``module``.

        variants: some of the module's functions have variants for vectors. Loops call these once they are vectorized,
        so they are inlined after that.
        """
        builder = llvm.create_pass_builder(machine, self._options())
        is_as_written = self in (Passes.TIDY, Passes.CALL)
        if not is_as_written:
            run_passes(builder.getModulePassManager(), module, builder)
        if variants:
            _drop_when_inlined(module)
        if is_as_written or variants:
            run_passes(_tidying(), module, builder)

    @property
    def codegen_level(self) -> int:
        """For LLVM's target machine: 0 chooses instructions one by one, 1 to 3 take as long as each other."""
        return 0 if self is Passes.CALL else 3

    def _options(self) -> Any:
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        options.loop_vectorization = True
        options.slp_vectorization = False
        options.loop_unrolling = self is Passes.UNROLL
        return options


def _drop_when_inlined(module: Any) -> None:
    """Variants are seen from outside of the module until now: nothing calls them before loops are vectorized.

    A function that has them is ``weak``, so that no pass looks into it or inlines it before.
    """
    for function in module.functions:
        if function.linkage is Linkage.weak_any:
            function.add_function_attribute("alwaysinline")
        if not function.is_declaration and b"alwaysinline" in b" ".join(function.attributes):
            function.linkage = Linkage.internal


def _tidying() -> Any:
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_global_dead_code_eliminate_pass()
    passes.add_sroa_pass()
    passes.add_simplify_cfg_pass()
    passes.add_instruction_combine_pass()
    return passes
