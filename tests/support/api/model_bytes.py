"""Bytes that begin like an ONNX file, which is all that the API looks at."""

#: `ir_version` 10, and the beginning of a graph that is longer than any test's file.
HEAD = b"\x08\x0a:\xff\xff\xff\x7f"


def model(content: bytes = b"", *, size: int = 0) -> bytes:
    """A file of at least so many bytes."""
    return (HEAD + content).ljust(size, b"x")
