"""Block sizes of reductions, windows and scans, such that the data of a block stays in a cache.

Ratios are the time with another size divided by the time with this one, for f32, on a core of an EPYC (Zen 5).
"""

from __future__ import annotations

#: Rows of a block of a reduction by a program that are adjacent in memory: reads are long, and the totals stay in the
#: L1 cache (argmax: 128 1.0 to 1.4, 4096 0.9 to 1.0).
NEIGHBOURS = 1024
#: Rows of such a block that are not adjacent: as many as a vector of any processor holds (argmax of a last dimension: 1
#: 1.3 to 5, 8 0.6 to 1.9, 64 1.0 to 3.3).
APART = 16
#: Rows of a scan that go side by side (256 1.2 to 1.5, 4096 0.9 to 1.5), and elements of a row in the buffer of a scan
#: along it (64 1.0 to 1.3, 2048 1.0 to 1.4).
SCAN_ROWS, SCAN_CHUNK = 1024, 512
#: Results of a block of windows (max pooling: 128 1.1 to 1.3, 8192 1.0).
WINDOW_BLOCK = 1024
#: Lanes of a block of select-and-scatter: the state of each stays in the L1 cache (gradients of max pooling: 64 1.0 to
#: 1.9, 4096 0.9 to 1.0).
SELECT_BLOCK = 512
