"""Small per-device programs for the runtime's tests, each made to tempt buffer assignment into one kind of mistake."""

from __future__ import annotations

from tests.runtime.programs.build import assert_same, compiled, module_of, random_inputs
from tests.runtime.programs.collectives import (
    ASYNC_COLLECTIVES,
    ASYNC_WRAPPED,
    CARRIED_BY_PYTHON,
    COLLECTIVES,
    OVER_OPERANDS,
    SUM,
)
from tests.runtime.programs.control_flow import (
    CALLS,
    CONDITIONAL,
    DEAD_LEAF,
    NESTED_UPDATE,
    OUTSIDE_READ,
    ROTATE_LOOP,
    SWAP_LOOP,
)
from tests.runtime.programs.exchange_loop import exchange_loop
from tests.runtime.programs.inner_loops import (
    FIRST_VALUE_OVER_PRODUCT,
    FIRST_VALUE_OVER_STATE,
    FIRST_VALUE_READS_STATE,
    LOOP_IN_A_BRANCH,
)
from tests.runtime.programs.memory_spaces import SPACES, SPACES_BRANCHES, SPACES_LOOP
from tests.runtime.programs.outputs import (
    DONATED,
    DONATED_SWAP,
    OUTPUT_AS_SPACE,
    OUTPUTS_OVER_TEMPORARIES,
    REPEATED_OUTPUTS,
)
from tests.runtime.programs.shared_results import SHARING
from tests.runtime.programs.views import DYING_OPERANDS, ELEMENTWISE, SYMMETRIC, VIEWS

#: The programs of one device, by name.
ALIASING = {
    "calls": CALLS,
    "dying_operands": DYING_OPERANDS,
    "dead_leaf": DEAD_LEAF,
    "elementwise": ELEMENTWISE,
    "symmetric": SYMMETRIC,
    "views": VIEWS,
    "swap_loop": SWAP_LOOP,
    "rotate_loop": ROTATE_LOOP,
    "nested_update": NESTED_UPDATE,
    "first_value_reads_state": FIRST_VALUE_READS_STATE,
    "first_value_over_product": FIRST_VALUE_OVER_PRODUCT,
    "first_value_over_state": FIRST_VALUE_OVER_STATE,
    "loop_in_a_branch": LOOP_IN_A_BRANCH,
    "outside_read": OUTSIDE_READ,
    "conditional": CONDITIONAL,
    "donated": DONATED,
    "donated_swap": DONATED_SWAP,
    "repeated_outputs": REPEATED_OUTPUTS,
    "output_as_space": OUTPUT_AS_SPACE,
    "outputs_over_temporaries": OUTPUTS_OVER_TEMPORARIES,
    "spaces": SPACES,
    "spaces_loop": SPACES_LOOP,
    "spaces_branches": SPACES_BRANCHES,
}

__all__ = [
    "ALIASING",
    "ASYNC_COLLECTIVES",
    "ASYNC_WRAPPED",
    "CALLS",
    "CARRIED_BY_PYTHON",
    "COLLECTIVES",
    "CONDITIONAL",
    "DEAD_LEAF",
    "DONATED",
    "DONATED_SWAP",
    "DYING_OPERANDS",
    "ELEMENTWISE",
    "FIRST_VALUE_READS_STATE",
    "NESTED_UPDATE",
    "OUTPUTS_OVER_TEMPORARIES",
    "OUTPUT_AS_SPACE",
    "OUTSIDE_READ",
    "OVER_OPERANDS",
    "REPEATED_OUTPUTS",
    "ROTATE_LOOP",
    "SHARING",
    "SUM",
    "SWAP_LOOP",
    "SYMMETRIC",
    "VIEWS",
    "assert_same",
    "compiled",
    "exchange_loop",
    "module_of",
    "random_inputs",
]
