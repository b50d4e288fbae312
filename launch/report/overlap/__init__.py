"""The overlap report: what of a measured run's communication was hidden, what was not, and why. Read model.py first."""
