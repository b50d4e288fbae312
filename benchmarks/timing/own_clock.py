"""Import before all that makes native code: with --own-time it takes its stamps of each thread's own CPU clock.

So a kernel's time says something on a machine where others run, too; what a collective waits there counts as its work.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

#: By which the benchmark itself times, in seconds.
CLOCK: Callable[[], float] = time.perf_counter

if "--own-time" in sys.argv:
    time.CLOCK_MONOTONIC = time.CLOCK_THREAD_CPUTIME_ID
    CLOCK = time.thread_time
