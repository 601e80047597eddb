"""Compilers that are a command line: described by a TOML file, or given after `--`."""
