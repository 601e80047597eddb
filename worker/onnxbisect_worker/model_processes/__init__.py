"""Child processes that read models: the pool that keeps them, the client that asks one, and the process itself.

A model may crash or take over what reads it, so that process has one model, sees little of the machine
(`confinement`), and its answers are not trusted. It is forked from a server that has imported everything (`server`),
which makes a start cheap; `pool.ModelPool` keeps processes for the next request about the same model. `process` is the
worker's end of it. What may be asked is in `model_requests.protocol`. Start with `pool`.
"""
