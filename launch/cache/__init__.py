"""Caches of compilation: programs and machine code in a folder of the user's."""
