"""What can be said of a model before any compiler is called."""
