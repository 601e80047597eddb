"""Measures which ops a compiler takes, by single-node models, and writes the profile that answers as it did."""
