"""Collectives as steps on arrays that are carried by messages."""
