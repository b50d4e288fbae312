"""Block sizes of reductions, windows and scans, such that the data of a block stays in a cache.

Ratios are the time with another size divided by the time with this one, for f32, on a core of an EPYC (Zen 5).
"""

from __future__ import annotations

#: Rows of a block of a reduction by a program if rows are adjacent in memory: reads are long, and the totals stay in
#: the L1 cache (argmax: 1.0 to 1.4 with 128, 0.9 to 1.0 with 4096).
NEIGHBOURS = 1024
#: Rows of such a block if rows are not adjacent: as many as a vector of any processor holds (argmax of a last
#: dimension: 1.3 to 5 with 1, 0.6 to 1.9 with 8, 1.0 to 3.3 with 64).
APART = 16
#: Rows of a block of a scan (1.2 to 1.5 with 256, 0.9 to 1.5 with 4096), and elements of a row in the buffer of a scan
#: along rows (1.0 to 1.3 with 64, 1.0 to 1.4 with 2048).
SCAN_ROWS, SCAN_CHUNK = 1024, 512
#: Results of a block of windows (max pooling: 1.1 to 1.3 with 128, 1.0 with 8192).
WINDOW_BLOCK = 1024
#: Lanes of a block of select-and-scatter: the selected elements stay in the L1 cache (gradients of max pooling: 1.0 to
#: 1.9 with 64, 0.9 to 1.0 with 4096).
SELECT_BLOCK = 512
