"""`hostile_compiler.py MODEL`: refuses models that hold an Exp, and attacks whoever reads why.

A browser, a terminal, a Markdown table, an XML parser, and a reader's eyes.
"""

import sys

WORDS = (
    "error: <img src=x onerror=alert('log')></pre></script><script>alert('log')</script>"
    "|`]]>&\u202egnp.exe\u200b\x1b[31m\x1b]0;title\x07{{7*7}}[a](javascript:alert(1))\ufffe"
)

if __name__ == "__main__":
    with open(sys.argv[1], "rb") as file:  # noqa: PTH123 - pathlib takes longer to import than this takes
        refused = b"\x22\x03Exp" in file.read()
    if refused:
        sys.stdout.buffer.write(b"\xed\xa0\x80 no UTF-8\r\n" + WORDS.encode() + b"\n")
    sys.exit(refused)
