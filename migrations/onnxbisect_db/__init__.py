"""The data layer: tables, operations on them, and content-addressed files. The same code for SQLite and PostgreSQL."""
