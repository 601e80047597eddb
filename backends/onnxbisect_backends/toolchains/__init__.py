"""Vendors' compilers from PyPI, installed from the exact pins of the TOML files in this folder."""
