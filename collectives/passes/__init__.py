"""Passes on collectives: fewer of them, smaller ones, elsewhere, or in parts; one pass a file."""
