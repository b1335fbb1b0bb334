#!/usr/bin/env python3
"""The table of rooms in README.md is the tree's: one row a folder with a target, low to high.

A folder has a target when its CMakeLists.txt makes a library; its description is the first sentence of the comment that
begins that file. The table stands between the markers `<!-- rooms -->` and `<!-- /rooms -->`.

Usage: rooms.py [--source FOLDER] [--write]
--write replaces the table in README.md.
"""
import re
import sys

import tree

BEGIN, END = "<!-- rooms -->", "<!-- /rooms -->"


TARGET = re.compile(r"^\s*heddle_(library|transport|umbrella)\(", re.MULTILINE)


def folders_of(root):
    for path, name in tree.files(root):
        if path.name == "CMakeLists.txt" and tree.is_product(name) and TARGET.search(path.read_text(encoding="utf-8")):
            yield name.rpartition("/")[0]


def low_to_high(root, folders):
    """Top folders in the order of add_subdirectory at the root; a folder before its rooms."""
    order = re.findall(r"add_subdirectory\(([^)]+)\)", (root / "CMakeLists.txt").read_text(encoding="utf-8"))

    def place(folder):
        within = [index for index, top in enumerate(order) if folder == top or folder.startswith(top + "/")]
        exact = [index for index in within if folder == order[index]]
        return (exact or within[-1:] or [len(order)])[0]
    # Rooms of one top folder stay together, the top folder first, in the order of names.
    return sorted(folders, key=lambda folder: (place(folder), folder))


def description(path):
    """The first sentence of the comment at the top."""
    text = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("# "):
            break
        text.append(line[2:].strip())
    sentence = re.match(r"(.+?\.)(?= |$)", " ".join(text))
    return sentence.group(1).rstrip(".") if sentence else ""


def table_of(root):
    """(lines of the table, problems)."""
    lines, problems = ["| folder, low to high | what lives there |", "|---|---|"], []
    for folder in low_to_high(root, folders_of(root)):
        path = root / folder / "CMakeLists.txt"
        what = description(path)
        if not what:
            problems.append(f"{folder}/CMakeLists.txt:1: error: no comment at the top says what the folder is")
        lines.append(f"| `{folder}/` | {what} |")
    return lines, problems


def main():
    parser = tree.arguments(__doc__)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    lines, problems = table_of(options.source)
    readme = options.source / "README.md"
    text = readme.read_text(encoding="utf-8").split("\n")
    if BEGIN not in text or END not in text:
        problems.append(f"README.md:1: error: no table of rooms between {BEGIN} and {END}")
        return tree.report("rooms", len(lines) - 2, problems)
    begin, end = text.index(BEGIN) + 1, text.index(END)
    if options.write:
        readme.write_text("\n".join(text[:begin] + lines + text[end:]), encoding="utf-8")
    else:
        shown = text[begin:end]
        for row in sorted(set(lines) - set(shown)):
            problems.append(f"README.md:{begin + 1}: error: this row is missing (rooms.py --write): {row}")
        for row in sorted(set(shown) - set(lines)):
            problems.append(f"README.md:{begin + 1 + shown.index(row)}: error: no such room: {row}")
        if not problems and shown != lines:
            problems.append(f"README.md:{begin + 1}: error: not the order of the layers (rooms.py --write)")
    return tree.report("rooms", len(lines) - 2, problems)


if __name__ == "__main__":
    sys.exit(main())
