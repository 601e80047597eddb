"""REST and the status page. Empty until the service lands; the import contract already holds its place."""
