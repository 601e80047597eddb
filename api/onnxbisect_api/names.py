"""Types of path parameters (row ids and SHA-256, where anything else is a 404), and of the idempotency key."""

from typing import Annotated

from fastapi import Header, Path

UUID_PATTERN = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
SHA256_PATTERN = "^[0-9a-f]{64}$"

#: Types for parameters in the path.
RowId = Annotated[str, Path(pattern=UUID_PATTERN)]
Sha256 = Annotated[str, Path(pattern=SHA256_PATTERN)]

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern="^[!-~]+$",
        description="the same key within a day makes the job once, and answers with it again",
    ),
]
