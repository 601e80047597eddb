"""The requests that a model process answers: their types, and the code that answers them in the process."""
