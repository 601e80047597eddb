"""A verdict together with what proves it."""

from dataclasses import dataclass, field

from onnxbisect.verdict import Verdict

#: Bytes of compiler log kept with a verdict: enough to show a culprit's failure again without compiling it.
LOG_BYTES = 64_000


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A verdict and the compiler's log, cut to `LOG_BYTES`.

    For a failure `file_sha256` is that of the bytes that were compiled: whoever cuts the same bytes again knows how
    the compiler answers them.
    """

    verdict: Verdict
    file_sha256: str = ""
    log: str = field(default="", repr=False)


def shorten_log(log: str) -> str:
    """A log cut to `LOG_BYTES`: errors stand at the end, the command and versions at the beginning."""
    raw = log.encode("utf-8", "replace")
    if len(raw) <= LOG_BYTES:
        return raw.decode("utf-8")
    head, tail = raw[: LOG_BYTES // 4], raw[-(LOG_BYTES * 3 // 4) :]
    cut = f"\n[onnx-bisect: {len(raw) - len(head) - len(tail)} bytes left out]\n"
    return head.decode("utf-8", "ignore") + cut + tail.decode("utf-8", "ignore")
