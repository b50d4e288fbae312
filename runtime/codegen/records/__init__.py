"""Argument records of native functions: the order of their fields, for Python and for native code."""
