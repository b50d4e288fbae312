"""What is done to IR before machine code is made of it: all that LLVM has to offer, or what handwritten code needs."""

from __future__ import annotations

from enum import Enum
from typing import Any

import llvmlite.binding as llvm

from runtime.codegen.llvm_at_once import run_passes


class Passes(Enum):
    """How much of LLVM's time IR is worth. All of them inline what is marked ``alwaysinline``."""

    TIDY = "tidy"
    """Values leave the stack, instructions and branches are combined; loops stay as they are written. For code that is
    written as it is to run, its vectors included: a tenth of what the others take."""
    VECTORIZE = "vectorize"
    """Loops over elements become loops over vectors, none is unrolled: memory limits most of them."""
    UNROLL = "unroll"
    """And loops are unrolled: for those that compute more than they load."""

    def run(self, machine: Any, module: Any) -> None:
        """On the calling thread, which alone has ``machine`` and ``module``."""
        builder = llvm.create_pass_builder(machine, self._options())
        if self is Passes.TIDY:
            run_passes(_tidying(), module, builder)
        else:
            run_passes(builder.getModulePassManager(), module, builder)

    def _options(self) -> Any:
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        options.loop_vectorization = True
        options.slp_vectorization = False
        options.loop_unrolling = self is Passes.UNROLL
        return options


def _tidying() -> Any:
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_global_dead_code_eliminate_pass()
    passes.add_sroa_pass()
    passes.add_simplify_cfg_pass()
    passes.add_instruction_combine_pass()
    return passes
