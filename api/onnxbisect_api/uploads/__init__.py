"""Bodies of requests: received piece by piece, within limits of size, time and a tenant's quota, into files.

A model may have gigabytes and be hostile, so no body is held in memory and no model is read here. `receiving` has the
limits and writes what it receives (`receive`), `model_form` parses a form while it arrives, and `model_upload` records
what is complete for the tenant. Start with `receiving`.
"""
