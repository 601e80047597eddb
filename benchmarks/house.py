"""How much a stranger has to learn of this code: modules, their length, private functions, imports, names that repeat.

python benchmarks/house.py
"""

import ast
import statistics
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


def main() -> None:
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
    functions = single = 0
    public: Counter[str] = Counter()
    for _, tree in trees:
        used = Counter(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
        used += Counter(node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute))
        public.update(node.name for node in tree.body if isinstance(node, ast.ClassDef) and node.name[0] != "_")
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions += 1
                single += node.name.startswith("_") and not node.name.startswith("__") and used[node.name] == 1
    twice = {name: count for name, count in public.items() if count > 1}
    total = sum(text.count("\n") for _, text in read)
    print(f"modules                                  {len(lengths)}")
    print(f"lines                                    {total}")
    print(f"lines of a module, median                {statistics.median(lengths):.0f}")
    print(f"private functions used once              {100 * single / functions:.1f} % of {functions}")
    print(f"lines of imports                         {100 * imports / total:.1f} %")
    print(f"public classes whose name stands twice   {len(twice)}: {', '.join(sorted(twice))}")


if __name__ == "__main__":
    main()
