"""Convolutions: one file for each form in which they are computed, and what the forms share."""
