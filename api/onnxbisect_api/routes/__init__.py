"""The operations: one module for each resource. Each exports `router`, without `/v1`.

A handler parses what its parameters declare, calls the data layer or `submission`, and returns a view; its name is the
operation id, so that generated clients can be read. `shared` gives Netron one culprit by a ticket. Start
with `jobs`.
"""
