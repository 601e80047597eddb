"""The engine: reads a model, plans what to compile, and says what the answers mean.

Its noun is the **probe**: a set of units (nodes) of the model, cut out as a file of its own, which a compiler takes or
refuses. The engine decides which probe to compile next and never compiles: it opens no connection, no database and
starts no process, so that the command line and a service get the same diagnosis from the same verdicts.

`model` reads the file, `cut` writes a probe, `search` plans, `causes`, `preflight` and `report` say what was found;
`rewrites`, `file_remedies` and `remedies` change the model, `proof` compares it with the original, `split` divides it.
Start with `session.next_step`, one step of a search, and docs/engine.md.
"""
