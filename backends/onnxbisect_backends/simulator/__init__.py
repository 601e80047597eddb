"""The `whitelist` backend: a compiler simulated from a profile of the ops that a real one supports."""
