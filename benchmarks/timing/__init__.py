"""Parts of several benchmarks: rounds in turn, rates of the machine, the least time and bytes of a program, plots."""
