#!/usr/bin/env python3
"""One language: words that scripts/words.txt keeps out are errors in clean folders, and counted elsewhere.

Usage: words.py [--source FOLDER] [--all]
--all shows every finding, also where it is no error.
Prints "path:line: error: …" and exits with 1 when a clean folder has one.
"""
import argparse
import collections
import os
import pathlib
import re
import sys

SKIPPED = {".git", "build", "runs", ".cache"}
SUFFIXES = {".h", ".cc", ".py", ".md", ".txt", ".cmake", ".proto", ".yaml", ".yml", ".html", ".sh", ""}
# What speaks about the words themselves.
OWN = {"scripts/words.txt", "scripts/checks/words.py", "tests/lint/planted_words.py"}
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
COMMENT = re.compile(r"(?://|(?<!\S)#).*$")
STRING = re.compile(r'"(?:\\.|[^"\\])*"')
DOCSTRING = re.compile(r'""".*?"""', re.DOTALL)
CODE = re.compile(r"`([^`]*)`")


class Words:
    """The rules of words.txt."""

    def __init__(self, path):
        self.words, self.phrases, self.allowed, self.clean = {}, [], [], []
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            kind, _, rest = line.partition(" ")
            fields = [field.strip() for field in re.split(r" \| ", rest)]
            if kind == "word" and len(fields) == 3 and fields[1] in ("TEXT", "NAMES"):
                self.words[fields[0]] = (fields[1], fields[2])
            elif kind == "phrase" and len(fields) == 2:
                self.phrases.append((re.compile(fields[0], re.IGNORECASE), fields[1]))
            elif kind == "allow" and len(fields) == 3:
                self.allowed.append((fields[0], re.compile(fields[1])))
            elif kind == "clean" and len(fields) == 1:
                self.clean.append(fields[0])
            else:
                sys.exit(f"{path}:{number}: error: not understood: {line}")

        looked_for = [*self.words, *(pattern.pattern for pattern, _ in self.phrases)]
        self.hint = re.compile("|".join(looked_for), re.IGNORECASE)

    def is_clean(self, name):
        return any(name == place or (place.endswith("/") and name.startswith(place)) for place in self.clean)

    def looked_at(self, name, line):
        for place, pattern in self.allowed:
            if place == "*" or name.startswith(place):
                line = pattern.sub("", line)
        return line

    def find(self, text, kind):
        """(what was found, what to say instead) of the words of a kind in `text`, by the parts of its names."""
        for name in NAME.findall(text):
            for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name):
                part = part.lower()
                word = part if part in self.words else part[:-1] if part.endswith("s") else ""
                if word in self.words and self.words[word][0] == kind:
                    yield name, self.words[word][1]


def names_of(path, text):
    """The lines of a file with nothing but names: the `code` of a document, a source without comments and strings."""
    if path.suffix == ".md":
        return [" ".join(CODE.findall(line)) for line in text.splitlines()]
    if path.suffix == ".py":
        text = DOCSTRING.sub(lambda match: "\n" * match.group().count("\n"), text)
    return [COMMENT.sub("", STRING.sub('""', line)) for line in text.splitlines()]


def findings(words, path, name):
    text = path.read_text(encoding="utf-8", errors="replace")
    if not words.hint.search(text):
        return
    for number, (line, names) in enumerate(zip(text.splitlines(), names_of(path, text)), 1):
        if not words.hint.search(line):
            continue
        line, names = words.looked_at(name, line), words.looked_at(name, names)
        found = list(words.find(line, "TEXT")) + list(words.find(names, "NAMES"))
        found += [(match.group(), instead) for pattern, instead in words.phrases for match in pattern.finditer(line)]
        for what, instead in found:
            yield number, what, instead


def files_of(root):
    for folder, below, names in os.walk(root):
        below[:] = sorted(set(below) - SKIPPED)
        for name in sorted(names):
            path = pathlib.Path(folder, name)
            if path.suffix in SUFFIXES and not path.is_symlink():
                yield path, path.relative_to(root).as_posix()


def main():
    parser = argparse.ArgumentParser(description="Find words that have a standard one.")
    parser.add_argument("--source", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2])
    parser.add_argument("--all", action="store_true", help="show every finding")
    arguments = parser.parse_args()
    root = arguments.source.resolve()
    words = Words(root / "scripts/words.txt")
    errors, elsewhere, count = 0, collections.Counter(), 0
    for path, name in files_of(root):
        count += 1
        for number, what, instead in findings(words, path, name) if name not in OWN else ():
            clean = words.is_clean(name)
            errors += clean
            elsewhere["/".join(name.split("/")[:-1][:2]) or name] += not clean
            if clean or arguments.all:
                print(f"{name}:{number}: {'error' if clean else 'note'}: '{what}': say {instead}")
    for folder, number in sorted(elsewhere.items()):
        if number:
            print(f"{folder}: {number} words to be renamed")
    print(f"{count} files, {errors} errors")
    return 1 if errors or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
