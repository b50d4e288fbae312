"""Parts of ``step_time.py``: the machine's rates, the least time a program's kernels can take, the picture."""
