"""REST: the edge of the service. Routes read the request, call the database layer, and ring."""
