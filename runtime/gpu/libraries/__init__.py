"""Kernels that library functions compute: calls as plain data, alone or between kernels in PTX."""
