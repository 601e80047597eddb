"""How much a stranger has to learn of this code: modules, their length, private functions, imports, names that repeat.

    python benchmarks/house.py [SINCE]

With a date, as `2026-11-28T10:00`, also the product's lines that commits took out since then, each of them without
what tests would have to assert: those that made the product smaller and the tests no larger. All others are features
and corrections, with the lines that they added.
"""

import ast
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: The folders of the product.
COMPONENTS = ("bisect", "backends", "library", "cli", "service", "api", "worker", "migrations")
#: What alembic wants a function to be called.
_REVISIONS = "versions"


def modules() -> Iterator[tuple[Path, str]]:
    """The product's modules that have code, without revisions of the database."""
    for component in COMPONENTS:
        for path in sorted((ROOT / component).rglob("*.py")):
            if _REVISIONS not in path.parts and (text := path.read_text("utf-8")).strip():
                yield path, text


def name_of(function: ast.expr) -> str:
    """What a call calls: the name of a function, or of a method."""
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")


def commits(since: str) -> list[tuple[int, int]]:
    """By how many lines each commit made the product and the tests larger, without revisions of the database."""
    argv = ["git", "log", f"--since={since}", "--no-renames", "--format=%x00", "--numstat", "--", "*.py"]
    log = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = []
    for commit in log.split("\0")[1:]:
        grown = {"product": 0, "tests": 0}
        for line in filter(None, commit.splitlines()):
            added, removed, name = line.split("\t")
            parts = Path(name).parts
            part = "product" if parts[0] in COMPONENTS and _REVISIONS not in parts else parts[0]
            if part in grown:
                grown[part] += int(added) - int(removed)
        found.append((grown["product"], grown["tests"]))
    return found


def main(since: str = "") -> None:
    """Print one line for each measure."""
    read = list(modules())
    trees = [(path, ast.parse(text)) for path, text in read]
    lengths = [text.count("\n") for path, text in read if path.name != "__init__.py"]
    imports = sum(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for _, tree in trees
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
    )
    functions = single = called = 0
    public: Counter[str] = Counter()
    for _, tree in trees:
        used = Counter(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
        used += Counter(node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute))
        in_calls = {name_of(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        public.update(node.name for node in tree.body if isinstance(node, ast.ClassDef) and node.name[0] != "_")
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions += 1
                # one that is no function of a call is a value, as a key, a property, or a dependency of FastAPI is
                once = node.name.startswith("_") and not node.name.startswith("__") and used[node.name] == 1
                single += once
                called += once and node.name in in_calls
    twice = {name: count for name, count in public.items() if count > 1}
    total = sum(text.count("\n") for _, text in read)
    print(f"modules                                  {len(lengths)}")
    print(f"lines                                    {total}")
    print(f"lines of a module, median                {statistics.median(lengths):.0f}")
    print(f"private functions used once              {100 * single / functions:.1f} % of {functions}")
    print(f"  of these called once                   {100 * called / functions:.1f} %")
    print(f"lines of imports                         {100 * imports / total:.1f} %")
    print(f"public classes whose name stands twice   {len(twice)}: {', '.join(sorted(twice))}")
    if since:
        every = commits(since)
        smaller = [product for product, tests in every if product < 0 and tests <= 0]
        others = sum(product for product, _ in every) - sum(smaller)
        print(f"lines that {len(smaller)} commits took out         {sum(smaller):+}")
        print(f"lines of the {len(every) - len(smaller)} other commits         {others:+}")


if __name__ == "__main__":
    main(*sys.argv[1:])
