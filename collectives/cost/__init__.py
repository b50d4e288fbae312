"""Cost model of instructions on a described machine: kernels by roofline, collectives by algorithm and placement."""
