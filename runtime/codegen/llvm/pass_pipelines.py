"""Pass pipelines for IR before machine code is made: LLVM's full optimization, or what handwritten code needs."""

from __future__ import annotations

from enum import Enum
from typing import Any

import llvmlite.binding as llvm
from llvmlite.binding import Linkage

from runtime.codegen.llvm.parallel_compile import run_passes


class Passes(Enum):
    """Optimization level of IR. All levels inline functions marked ``alwaysinline``."""

    TIDY = "tidy"
    """Values leave the stack, instructions and branches are combined; loops stay as they are written. For code that is
    written as it should run, including its vectors. Takes a tenth of the time of the other levels.
    """
    CALL = "call"
    """TIDY, and machine code is made without optimization, in a fifth of the time. For code that calls other code,
    such as the loop over thunks: 15.7 ns a thunk instead of 14.7 (benchmarks/native/dispatch.py).
    """
    VECTORIZE = "vectors"
    """Loops over elements become loops over vectors, none is unrolled: memory limits most of them. On x86
    with AVX2 or AVX-512 the project's vectorizer writes them, and they are only tidied (vectorizer/loops.py).
    """
    UNROLL = "unroll"
    """VECTORIZE, and loops are unrolled: for those that compute more than they load."""

    def run(self, machine: Any, module: Any, *, variants: bool = False) -> None:
        """Run the passes on the calling thread, which must own ``machine`` and ``module``.

        variants: some of the module's functions have variants for vectors. Vectorized loops call these, so they are
        inlined only after that.
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
        """The level of LLVM's target machine: 0 selects instructions one by one; 1 to 3 take equally long."""
        return 0 if self is Passes.CALL else 3

    def _options(self) -> Any:
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        options.loop_vectorization = True
        options.slp_vectorization = False
        options.loop_unrolling = self is Passes.UNROLL
        return options


def _drop_when_inlined(module: Any) -> None:
    """Make variants internal and inline them. They were external until now because vectorized loops call them first.

    A function with variants is ``weak``, so that no pass inlines it before.
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
