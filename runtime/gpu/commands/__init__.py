"""Rules that turn thunks into GPU commands, one file for each kind of thunk.

Importing this package registers the rules in ``RULES`` (runtime/gpu/planning.py).
"""

from runtime.gpu.commands import (  # noqa: F401 - they register their rules
    callback,
    collective,
    conditional,
    device_id,
    feed,
    kernel,
    sequence,
    while_loop,
)
