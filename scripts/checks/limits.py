#!/usr/bin/env python3
"""Units are small: files, functions, classes and folders are compared with the numbers of scripts/limits.toml.

The numbers in CONTRIBUTING.md and .clang-tidy must be the same. A unit that exceeds them needs an exception in
scripts/limits.toml with the reason; an exception whose unit has become small enough is an error.

Usage: limits.py [--source FOLDER] [--largest N] [--list]
--largest prints the N largest classes and functions; --list prints missing exceptions, without a reason.
"""
import re
import sys

import cpp_units
import tree

CODE = tree.CPP | {".py", ".proto", ".sh"}
GENERATED = re.compile(r"(_corpus|/golden)/")
RULES = ("file_lines", "function_lines", "class_methods", "class_fields", "folder_files")
# Files that repeat the numbers: a pattern with the number as its group.
REPEATED = {
    "CONTRIBUTING.md": {
        "file_lines": r"[Ff]iles? of at most (\d+) lines",
        "function_lines": r"functions? of at most (\d+)",
        "class_methods": r"(\d+) methods",
        "class_fields": r"(\d+) fields",
        "folder_files": r"folders? of at most (\d+) files",
    },
    ".clang-tidy": {"function_lines": r"readability-function-size\.LineThreshold, value: '(\d+)'"},
}


class Sizes:
    """All units with their sizes: lists of (rule, size, path, name, line)."""

    def __init__(self, root):
        self.found, self.classes, self.functions, self.problems, self.count = [], [], [], [], 0
        folders = {}
        for path, name in tree.files(root):
            if GENERATED.search(name):
                continue
            folder = name.rpartition("/")[0]
            folders[folder] = folders.get(folder, 0) + 1
            if path.suffix in CODE or (not path.suffix and tree.interpreter(path)):
                self.file(path, name)
        for folder, count in sorted(folders.items()):
            self.found.append(("folder_files", count, folder or ".", "", 1))

    def file(self, path, name):
        self.count += 1
        text = path.read_text(encoding="utf-8")
        self.found.append(("file_lines", text.count("\n"), name, "", 1))
        if path.suffix not in tree.CPP:
            return
        try:
            scan = cpp_units.Scan(text)
        except ValueError as problem:
            self.problems.append(f"{name}:1: error: braces do not match: {problem}")
            return
        for unit in scan.classes:
            self.classes.append((unit.fields, unit.methods, name, unit.name, unit.line))
            self.found.append(("class_fields", unit.fields, name, unit.name, unit.line))
            self.found.append(("class_methods", unit.methods, name, unit.name, unit.line))
        for unit in scan.functions:
            self.functions.append((unit.lines, name, unit.name, unit.line))
            self.found.append(("function_lines", unit.lines, name, unit.name, unit.line))


def check_repeated(root, rules):
    for name, patterns in REPEATED.items():
        path = root / name
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        for rule, pattern in patterns.items():
            said = re.search(pattern, text)
            if not said:
                yield f"{name}:1: error: does not say the limit {rule}, {rules.limits[rule]} ({rules.name})"
            elif int(said.group(1)) != rules.limits[rule]:
                line = text[:said.start(1)].count("\n") + 1
                yield f"{name}:{line}: error: {rule} is {rules.limits[rule]} in {rules.name}, {said.group(1)} here"


def exceeding(sizes, rules):
    return [item for item in sizes.found if item[1] > rules.limits[item[0]]]


def print_largest(sizes, count):
    print("fields methods  class")
    for fields, methods, path, name, line in sorted(sizes.classes, key=lambda c: -max(c[0] / 20, c[1] / 25))[:count]:
        print(f"{fields:6} {methods:7}  {name} ({path}:{line})")
    print("lines  function")
    for lines, path, name, line in sorted(sizes.functions, reverse=True)[:count]:
        print(f"{lines:5}  {name} ({path}:{line})")


def main():
    parser = tree.arguments(__doc__)
    parser.add_argument("--largest", type=int, default=0, metavar="N")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    rules, sizes = tree.Rules(options.source), Sizes(options.source)
    if options.list:
        for rule, size, path, name, _ in exceeding(sizes, rules):
            if not rules.excused(rule, path, name):
                print(f'[[exception]]\nrule = "{rule}"\npath = "{path}"' + (f'\nname = "{name}"' if name else "") +
                      f'\nreason = ""  # {size}\n')
        return 0
    if options.largest:
        print_largest(sizes, options.largest)
    problems = sizes.problems
    for rule, size, path, name, line in exceeding(sizes, rules):
        if not rules.excused(rule, path, name):
            what = {"file_lines": "lines", "function_lines": f"lines: {name}", "class_methods": f"methods: {name}",
                    "class_fields": f"fields: {name}", "folder_files": "files of its own"}[rule]
            problems.append(f"{path}:{line}: error: {size} {what}; at most {rules.limits[rule]}, or an exception with "
                            f"its reason in {rules.name}")
    problems += rules.unused(RULES)
    problems += check_repeated(options.source, rules)
    return tree.report("limits", sizes.count, problems)


if __name__ == "__main__":
    sys.exit(main())
