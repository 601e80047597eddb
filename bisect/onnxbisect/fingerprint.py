"""Normalise a compiler's message: remove everything that changes from one probe to the next.

Two failures are the same complaint if their fingerprints are equal. Op types, dtypes and error codes are kept; names,
paths, numbers, addresses, times and colours are removed. Logs are untrusted: the code relies on no length, encoding or
set of characters.
"""

import re
from collections.abc import Collection, Sequence

_MOST = 200
_MOST_HEADLINE = 300
#: Most characters of a line that are examined; what distinguishes failures comes before.
_LINE = 2000

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
#: Control characters, and those that reorder or hide text.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")

_COMPLAINT = re.compile(
    r"error|exception|fatal|fail(?:ed|ure)|abort|assert|unsupport|segmentation fault|core dumped|no lowering"
    r"|\bnot (?:yet |been )?(?:support|implement|regist|allow|found|valid|convert)"
    r"|\b(?:cannot|can't|unable to|could not)\b"
    r"|\binvalid|\billegal|out of memory|\bno (?:\w+ )?(?:importer|parser|translation|conversion rule)",
    re.IGNORECASE,
)
_NO_COMPLAINT = re.compile(r"\b(?:0|no|zero|without) (?:errors?|failures?|exceptions?)\b", re.IGNORECASE)

#: Where in its sources a C++ program stands, as onnxruntime writes before what it says: file, line and signature.
_SOURCE = re.compile(
    r"(?<![^\s:])(?:/|[A-Za-z]:\\)\S{1,300}\.(?:cc|cpp|h|hpp):\d+ (?=[^()\n]{0,300}::)[\w:<>,&*~ ]{1,300}"
    r"\((?:[^()\n]|\([^()\n]{0,300}\)){0,1000}\)(?:::<lambda\([^()\n]{0,300}\)>)?(?: const)?(?: \[with [^\]\n]*\])? "
)
#: What onnxruntime puts before its messages.
_CODES = re.compile(r"^\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : (?:This is an invalid model\. |Fatal error: )?")
_BRIEF = 240
#: How a shell reports the end of a program that C++ aborted.
_ABORTED = re.compile(r"(?:.*: line \d+: +\d+ )?Aborted\b")
#: A frame of a Python traceback.
_FRAME = re.compile(r"^ +File \".*\", line \d+")

#: A frame of the stack that a program in C++ prints where it dies (LLVM's, gdb's, sanitizers' form), and its function.
_STACK_FRAME = re.compile(r"^ *#\d+ +0x[0-9a-fA-F]+ (?:in )?(?P<function>[^\n]{1,1000})")
#: What stands around them in LLVM's.
_STACK_DUMP = re.compile(r"^(?:PLEASE submit a bug report to |Please report issues to \S+ and include|Stack dump\b)")
_STACK_TASK = re.compile(r"^\d+\.\t")
#: Frames of Java, JavaScript and Rust.
_OTHER_FRAME = re.compile(r"^\s+at \S[^\n]{0,500}(?::\d+\)?|\(Native Method\)|\(<anonymous>\))$|^ +\d+: +\S+::\S+")
#: Functions that say that a program dies, not where: of the printing, of signals, of the C library, without a name.
_NOWHERE = re.compile(
    r"PrintStackTrace|RunSignalHandlers|SignalHandler|report_fatal_error|llvm_unreachable|^\(/|libc\.so|libpthread"
    r"|^_*(?:gnu_cxx|cxxabi|sig|raise|abort|assert|pthread_kill|libc_start|start\b|tgkill)|^std::terminate"
)
#: Where a frame's function stands in its sources or library.
_PLACE = re.compile(r" (?:\S+:\d+(?::\d+)?|\([^()\s]*\+0x[0-9a-fA-F]+\))$")

_TIME = re.compile(
    r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?|\b\d\d:\d\d:\d\d(?:[.,]\d+)?\b"
)
_QUOTED = re.compile(r"(?<!\w)'([^'\n]*)'(?!\w)|\"([^\"\n]*)\"|`([^`'\n]*)[`']")
_WORDS = re.compile(r"[A-Za-z]{2,}")
#: A path or a scoped name: begins with a slash or dots and a slash, or has two slashes.
_PATH = re.compile(
    r"(?<![\w<])(?:~|\.{1,2})?/[^\s'\"(){}\[\],;=<>|]+|(?<![\w/])[\w.:-]+/[\w.:-]+/[^\s'\"(){}\[\],;=<>|]*"
)
_FILE = re.compile(r"[\w.-]+\.(?:onnx|mlir|tflite|pb|bin|so|json|data|out|log|tmp)\b(?:\.\d+)*")
_HEX = re.compile(r"\b0[xX][0-9a-fA-F]+\b|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,}\b")
#: Names of nodes and tensors made by exporters and compilers: `Conv_12`, `onnx::MatMul_345`, `layers.0.norm`, `%13`.
_NUMBERED = re.compile(r"%[\w.]+|\b[A-Za-z_][\w:.$/-]*?[_.#]\d+(?:[\w:.$#/-]*\w)?")
_DIMENSIONS = re.compile(r"(?<![\w?])(?:\?|\d+)(?:x(?:\?|\d+))+")
_NUMBER = re.compile(r"(?<![A-Za-z_0-9.])[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_LIST = re.compile(r"(<name>|#)(?:(?:\s*[,;]\s*|\s+)\1)+")


def plain(text: str) -> str:
    """Log text without colours and without characters that move the cursor or reorder text; lines are kept.

    A progress bar's carriage returns become line ends.
    """
    text = _ANSI.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _UNPRINTABLE.sub("", text)


def without_source(text: str) -> str:
    """The text without file, line and signature of C++ functions, which are longer than what is said behind them."""
    return _SOURCE.sub("", text)


def headline(log: str) -> str:
    """The most useful line of a log: the last one that complains, else the last that is not empty.

    The exception at the end of a Python traceback complains whatever it says, and the lines of the traceback do not. An
    exception without a message has that of the line below it, or else the code that raised it. Nor do the frames of a
    stack in another language; where nothing complains before them, the headline is the first function that tells where.
    Without positions in C++ sources; at most 300 characters, without control characters; empty for an empty log.
    """
    last = ""
    lines = [line[:_LINE] for line in plain(log).split("\n")]
    # the lines of Python tracebacks: the frames, the code below each, and what comes before them
    traced: set[int] = set()
    stacked: set[int] = set()
    for index, line in enumerate(lines):
        if not line:  # a hostile log may have nothing but such lines
            continue
        code = index - 1 in traced and line.startswith("    ")
        if code or _FRAME.match(line) or line.startswith("Traceback (most recent call last)"):
            traced.add(index)
        task = index - 1 in stacked and _STACK_TASK.match(line)
        if task or _STACK_FRAME.match(line) or _STACK_DUMP.match(line) or _OTHER_FRAME.match(line):
            stacked.add(index)
    for index in reversed(range(len(lines))):
        if not lines[index] or index in traced or index in stacked:
            continue
        head = without_source(lines[index].strip())
        if not head:
            continue
        if index - 1 in traced:
            return _cut(_exception(lines, index, traced), _MOST_HEADLINE)
        if _ABORTED.match(head):  # by an exception in C++, which the line above names
            above = without_source(lines[index - 1].strip()) if index else ""
            names = above.startswith("what()") or complains(above)
            return _cut(above if names else head, _MOST_HEADLINE)
        if complains(head):
            return _cut(head, _MOST_HEADLINE)
        last = last or head
    # where a program died, by the first stack that its log has
    frames = [frame["function"].strip() for line in lines if (frame := _STACK_FRAME.match(line))]
    functions = (_PLACE.sub("", frame) for frame in frames if not _NOWHERE.search(frame))
    crash = next((f"crashed in {function}" for function in functions), "")
    return _cut(crash or last, _MOST_HEADLINE)


def _exception(lines: Sequence[str], index: int, traced: Collection[int]) -> str:
    """What the exception at this line says; its message may begin in the next line, and a bare assertion has none."""
    named = without_source(lines[index].strip())
    below = lines[index + 1].strip() if index + 1 < len(lines) else ""
    if named.endswith(":") and below and index + 1 not in traced:
        return f"{named} {below}"
    code = next(line.strip() for line in reversed(lines[:index]) if line.strip(" ^~"))
    if named == "AssertionError" and code.startswith("assert "):
        return f"{named}: {code}"
    return named


def complains(line: str) -> bool:
    """Whether a line of a log says that something went wrong."""
    return bool(_COMPLAINT.search(line)) and not _NO_COMPLAINT.search(line)


def fingerprint(text: str) -> str:
    """Normalise a compiler's message (a line or a few): at most 200 characters that compare equal across probes.

    Names become `<name>`, numbers `#`, times `<time>`; a list of either counts as one. Quoted text of three or
    more words is a message, not a name, and keeps its words.
    """
    text = without_source(plain(text)[: 2 * _LINE])
    text = _TIME.sub("<time>", text)
    text = _QUOTED.sub(_unquote, text)
    text = _PATH.sub("<name>", text)
    text = _FILE.sub("<name>", text)
    text = _HEX.sub("#", text)
    text = _NUMBERED.sub("<name>", text)
    text = _DIMENSIONS.sub("#", text)
    text = _NUMBER.sub("#", text)
    text = _LIST.sub(r"\1", " ".join(text.split()))
    return _cut(text, _MOST)


def _unquote(match: re.Match[str]) -> str:
    inner = next(group for group in match.groups() if group is not None)
    return inner if len(_WORDS.findall(inner)) >= 3 and " " in inner else "<name>"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def brief(words: str) -> str:
    """The first line of a message, without onnxruntime's leading codes and sources and without the final full stop.

    The middle of a long one is left out: onnxruntime says where at the beginning, and why at the end.
    """
    line = next((line for line in words.splitlines() if line.strip()), "")
    text = without_source(_CODES.sub("", line.strip())).strip().rstrip(".")
    return text if len(text) <= _BRIEF else f"{text[: _BRIEF // 3]} ... {text[5 - _BRIEF + _BRIEF // 3 :]}"
