"""Compilers that are a command line: described by a TOML file, or given after `--`.

The noun is the **definition**: a TOML file with the command, what a pass is, and patterns for the log
(`definition.Definition`). A compiler that prints which op it refuses needs no code, only such a file; those that are
shipped are in `compilers/`. `toml_backend.TomlBackend` runs a definition, `any_command.CommandBackend` a command of
which nothing is known but its exit status. Start with a file in `compilers/`, then `toml_backend`.
"""
