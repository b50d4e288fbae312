"""Costs of kernels: element operations and traffic of flat kernels, loops and rows, by a machine's rates."""
