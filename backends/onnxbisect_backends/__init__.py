"""The compilers: the Backend contract, the process runner, one module or one TOML file per compiler."""
