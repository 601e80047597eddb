"""Turn a Job into reports for people and machines. Only `document` and its imports need the model."""
