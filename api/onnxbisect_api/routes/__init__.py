"""What the service answers: one module for each thing that has addresses. Each exports `router`, without `/v1`."""
