"""Vendors' compilers from PyPI, installed from the exact pins of the TOML files in this folder.

The pins of two compilers conflict with each other and with ours, so each version is a Python environment of its own in
the user's cache: a `toolchain.Toolchain`, created once and never changed. A version without a file here is resolved by
pip once, and its pins are written as such a file (`series`). Start with `toolchain`.
"""
