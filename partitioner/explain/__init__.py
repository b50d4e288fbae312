"""Explanations of a partitioning: causes of shardings and collectives, conflicts, and annotations that remove them."""
