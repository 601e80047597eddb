"""The operations: one module for each resource. Each exports `router`, without `/v1`."""
