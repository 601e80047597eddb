"""From a Job to what people and machines read. What reads a model comes with `document`, and with nothing else."""
