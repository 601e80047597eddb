"""From a Job to what people and machines read."""
