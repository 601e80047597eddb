"""Compiler backends: how a vendor's compiler is called, limited and understood.

A backend is a class with the methods of `contract.Backend`: it compiles one file and judges the outcome as a verdict.
Most need no class but a TOML file (`commands/`); `vendors/` has those that need code, `simulator/` compilers that are a
table of ops. `sandbox` runs them, `toolchains` installs them, `probing` asks them about a piece of a model. The
registry finds backends by name. Start with `contract`.
"""
