"""The steps of a job around its search: changed files, other options, tests of causes, and the repair.

Each step says what to compile and what follows from the answers, and leaves the compiling to its caller: `diagnose` and
`fix` compile in threads, the service's workers compile for each other. Start with `repairing.repair_model`.
"""
