"""Compiler backends: the Backend contract, the process runner, and one module or TOML file per compiler."""
