"""Measures which ops a compiler accepts, with single-node models, and writes a profile with the same answers."""
