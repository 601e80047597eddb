"""Jobs in motion. Empty until the service lands; the import contract already holds its place."""
