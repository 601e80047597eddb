"""What the API shows of jobs: found for the caller, and made into documents.

`found` looks up a job of the caller, its targets and their stored files, or raises a problem: nothing is shown of
another tenant. `job_view` is a job as REST shows it, `units` are the nodes of a target with their states, `overviews`
several reports in one table, and `listing` reads labels and pages of lists. Start with `found`.
"""
