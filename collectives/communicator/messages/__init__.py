"""Collectives as actions on arrays that are carried by messages."""
