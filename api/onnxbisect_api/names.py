"""What names things in addresses: ids of rows, and SHA-256 of files. Anything else names nothing, and is a 404."""

from typing import Annotated

from fastapi import Path

UUID_PATTERN = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
SHA256_PATTERN = "^[0-9a-f]{64}$"

#: A parameter of this type is a part of the path.
RowId = Annotated[str, Path(pattern=UUID_PATTERN)]
Sha256 = Annotated[str, Path(pattern=SHA256_PATTERN)]
