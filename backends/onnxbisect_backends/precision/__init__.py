"""Runs a model with chosen nodes in low precision, each time in a process of its own, and scores what it computes."""
