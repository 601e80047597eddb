"""What is kept: tables, the operations on them, and content-addressed files. SQLite or PostgreSQL, the same code."""
