"""What is kept: tables and repositories. Empty until the service lands; the import contract already holds its place."""
