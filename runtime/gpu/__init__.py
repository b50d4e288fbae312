"""The GPU back end: commands planned from thunks, and a driver that runs them.

Only ``cuda`` and ``availability`` import CuPy.
"""
