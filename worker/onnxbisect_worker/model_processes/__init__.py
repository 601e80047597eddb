"""Child processes that read models: the pool that keeps them, the client that asks one, and the process itself."""
