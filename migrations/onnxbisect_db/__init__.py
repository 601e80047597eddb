"""The data layer: tables, operations on them, and content-addressed files. The same code for SQLite and PostgreSQL.

A job has a target for each compiler, a target has a search, a search has probes. The database is also the queue:
workers claim searches (`search_queue`) and probes (`probes`) under a lease, and what a dead worker held is claimed
again (`reconcile`). `tables` defines the rows, `lifecycle` says how jobs start and end; docs/service.md draws it.
"""
