"""Whether results are right: comparison with expected outputs and with the reference, and the op that differs first."""
