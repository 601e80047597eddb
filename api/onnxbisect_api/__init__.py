"""REST: the edge of the service. Routes read the request, and call the database layer."""
