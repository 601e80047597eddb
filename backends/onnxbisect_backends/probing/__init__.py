"""Asking a compiler about pieces of a model: what the library and the service share.

`intake` reads a model, `inquiry` puts it before one target, `prober` asks a question from beginning to end, and
`culprit_files` hands out what was found.
"""
