#!/usr/bin/env python3
"""The tables of modules in the README.md files are those of the tree.

A module is a folder whose CMakeLists.txt makes a library. A table stands between the markers `<!-- modules -->` and
`<!-- /modules -->`:

1. README.md at the root has a row for each top folder, with the first sentence of that folder's README.md.
2. The README.md of a top folder that has modules has a row for each, in the order of names, with the first sentence of
   the comment that begins the module's CMakeLists.txt.

Usage: modules.py [--source FOLDER] [--write]
--write replaces the tables.
"""
import re
import sys

import tree

BEGIN, END = "<!-- modules -->", "<!-- /modules -->"
# The rows of the table at the root, in its order.
TOP = ("engine", "elastic", "checkpoint", "comm", "planner", "metrics", "tests", "benchmarks", "base", "cli")
TARGET = re.compile(r"^\s*heddle_(library|transport|umbrella)\(", re.MULTILINE)


def modules_of(root):
    """Paths of all modules, in the order of names."""
    lists = ((path, name) for path, name in tree.files(root) if path.name == "CMakeLists.txt" and tree.is_product(name))
    return sorted(name.rpartition("/")[0] for path, name in lists if TARGET.search(path.read_text(encoding="utf-8")))


def first_sentence(lines):
    sentence = re.match(r"(.+?\.)(?= |$)", " ".join(lines))
    return sentence.group(1).rstrip(".") if sentence else ""


def comment_of(path):
    """The first sentence of the comment at the top of a CMakeLists.txt."""
    text = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("# "):
            break
        text.append(line[2:].strip())
    return first_sentence(text)


def purpose_of(path):
    """The first sentence below the title of a README.md."""
    paragraphs = path.read_text(encoding="utf-8").split("\n\n") if path.is_file() else []
    return first_sentence(paragraphs[1].split("\n")) if len(paragraphs) > 1 and paragraphs[0].startswith("# ") else ""


def tables_of(root):
    """(README.md, lines of its table) of every README.md with a table, and problems."""
    problems = []
    rows = ["| folder | what it holds |", "|---|---|"]
    for folder in TOP:
        if (root / folder).is_dir():
            purpose = purpose_of(root / folder / "README.md")
            if not purpose:
                problems.append(f"{folder}/README.md:1: error: no sentence below the title says what the folder holds")
            rows.append(f"| [{folder}/]({folder}/README.md) | {purpose} |")
    tables = {"README.md": rows}
    for module in modules_of(root):
        top = module.partition("/")[0]
        text = comment_of(root / module / "CMakeLists.txt")
        if not text:
            problems.append(f"{module}/CMakeLists.txt:1: error: no comment at the top says what the module holds")
        table = tables.setdefault(f"{top}/README.md", ["| module | what it holds |", "|---|---|"])
        table.append(f"| `{module}/` | {text} |")
    return tables, problems


def compare(name, number, shown, rows):
    """Problems of a table that begins at a line of a file."""
    for row in rows:
        if row not in shown:
            yield f"{name}:{number}: error: this row is missing (modules.py --write): {row}"
    for index, row in enumerate(shown):
        if row not in rows:
            yield f"{name}:{number + index}: error: no such module: {row}"
    if sorted(shown) == sorted(rows) and shown != rows:
        yield f"{name}:{number}: error: the rows are in another order (modules.py --write)"


def main():
    parser = tree.arguments(__doc__)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    tables, problems = tables_of(options.source)
    for name, rows in tables.items():
        path = options.source / name
        text = path.read_text(encoding="utf-8").split("\n") if path.is_file() else []
        if BEGIN not in text or END not in text:
            problems.append(f"{name}:1: error: no table of modules between {BEGIN} and {END}")
            continue
        begin, end = text.index(BEGIN) + 1, text.index(END)
        if options.write:
            path.write_text("\n".join(text[:begin] + rows + text[end:]), encoding="utf-8")
        else:
            problems += compare(name, begin + 1, text[begin:end], rows)
    return tree.report("modules", len(tables), problems)


if __name__ == "__main__":
    sys.exit(main())
