"""Errors as clients read them: a problem document with a sentence that says what to do.

The noun is the **problem** (`problems.Problem`): raised anywhere below a route, answered as `application/problem+json`.
`mistakes` says in the words of the request what is wrong with it, where pydantic would name Python types. Start with
`problems`.
"""
