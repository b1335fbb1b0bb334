#!/usr/bin/env python3
"""Documents are true: links, commands, and the names of tests and of code.

1. Every relative link of a Markdown file leads to a file, and an anchor in it to a heading.
2. Every command `heddle …` in a block of shell text names subcommands and options that `--help` knows; every
   script named there exists and can be run. (Only with --heddle.)
3. Every ctest entry and every case of googletest that a document names exists (named_tests.py). Entries only with
   --entries.
4. Every reference `path/file.h: Name` in a code span names a file of the tree and a name in it: each part of
   `Class::Method` is in that file, outside of comments and string literals. On the page FOLLOWED any other name of a
   function or class is in one of the files to which the page refers.
5. In docs/guide commands are in blocks ```sh, which the test integration.guide runs. A command that cannot be run there
   is in a block ```text, and the line above the block has the reason: it begins with "Not run by the test:".

scripts/checks/reference.py checks what docs/reference must list.

Usage: docs.py [--source FOLDER] [--heddle PROGRAM] [--entries TESTS_JSON]
Prints "path:line: error: …" and exits with 1 when something is wrong.
"""
import argparse
import functools
import os
import pathlib
import re
import subprocess
import sys

import named_tests

SKIPPED = {".git", "build", "runs", ".cache"}
LINK = re.compile(r"(?<!\!)\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```(\w*)\s*$")
SHELL = {"console", "sh", "bash"}
GUIDE = "docs/guide/"
GUIDE_LANGUAGES = {"sh", "text", "yaml"}
UNTESTED = "Not run by the test:"
FOLLOWED = "docs/internals/life-of-a-job.md"
REFERENCE = re.compile(r"`([\w./-]+\.(?:h|cc|proto)): ([A-Za-z_][\w:~]*)`")
BARE_NAME = re.compile(r"`([A-Z][A-Za-z]*(?:::[A-Z][A-Za-z]*)*)`")
NO_CODE = re.compile(r'''//[^\n]*|"(?:\\.|[^"\\\n])*"''')
COMMAND = re.compile(r"^(?:heddle|scripts/\w|ctest|cmake|pip|python3?|systemctl|docker|git|curl) ?")


def heading_anchor(text):
    text = re.sub(r"[`*]", "", text.strip().lower())
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", text))


def check_links(root, path, name, lines):
    fenced = False
    for number, line in enumerate(lines, 1):
        if FENCE.match(line):
            fenced = not fenced
        if fenced:
            continue
        for target in LINK.findall(re.sub(r"`[^`]*`", "", line)):
            if re.match(r"^[a-z]+:", target):
                continue
            file, _, anchor = target.partition("#")
            where = (path.parent / file).resolve() if file else path
            if not where.exists():
                yield f"{name}:{number}: error: {target} is not there"
            elif anchor and where.suffix == ".md":
                headings = {heading_anchor(h) for h in re.findall(r"^#+ (.*)$", where.read_text(), re.MULTILINE)}
                if anchor not in headings:
                    yield f"{name}:{number}: error: no heading for #{anchor} in {where.relative_to(root)}"


@functools.cache
def names_in(path):
    """The words of a source outside of comments and string literals; None: there is no such file."""
    if not path.is_file():
        return None
    return frozenset(re.findall(r"\w+", NO_CODE.sub("", path.read_text(encoding="utf-8"))))


def check_references(root, name, lines):
    known = {part for line in lines for file, _ in REFERENCE.findall(line) for part in names_in(root / file) or ()}
    for number, line in enumerate(lines, 1):
        for what in BARE_NAME.findall(line) if name == FOLLOWED else ():
            if missing := [part for part in what.split("::") if part not in known]:
                yield f"{name}:{number}: error: no {missing[0]} in the files to which this page refers"
        for file, what in REFERENCE.findall(line):
            names = names_in(root / file)
            if names is None:
                yield f"{name}:{number}: error: {file} is not there"
            elif missing := [part for part in what.split("::") if part not in names]:
                yield f"{name}:{number}: error: no {missing[0]} in {file}"


@functools.cache
def help_text(heddle, words):
    result = subprocess.run([heddle, *words, "--help"], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                            timeout=60, check=False)
    return result.stdout if result.returncode == 0 else None


def check_command(root, heddle, words):
    if words[0].startswith(("scripts/", "benchmarks/", ".ci/", "tests/")):
        file = root / words[0]
        if not file.is_file():
            yield f"{words[0]} is not there"
        elif not file.stat().st_mode & 0o100:
            yield f"{words[0]} cannot be executed"
        return
    if words[0].split("/")[-1] != "heddle" or not heddle:
        return
    subcommands = []
    for word in words[1:]:
        known = help_text(heddle, tuple(subcommands))
        listed = re.search(r"^Subcommands:\n((?:[ \t]+.*\n?)*)", known, re.MULTILINE)
        if not listed or word.startswith("-"):
            break
        if not re.search(rf"^\s+{re.escape(word)}\s", listed.group(1), re.MULTILINE):
            yield f"heddle {' '.join(subcommands)} has no subcommand {word}"
            return
        subcommands.append(word)
    known = help_text(heddle, tuple(subcommands))
    for word in words[1 + len(subcommands):]:
        option = word.split("=")[0]
        if word in {"|", "||", "&&", "&", ">", ";"}:
            break
        if word.startswith("--") and not re.search(rf"{option}\b", known):
            yield f"heddle {' '.join(subcommands)} has no option {option}"


def fenced_lines(lines):
    """(number, language, the last line of text above the block, line) of each line in a fenced block."""
    language, above = None, ""
    for number, line in enumerate(lines, 1):
        fence = FENCE.match(line)
        if fence:
            language = None if language is not None else fence.group(1)
        elif language is not None:
            yield number, language, above, line
        elif line:
            above = line


def check_commands(root, heddle, name, lines):
    guide = name.startswith(GUIDE)
    for number, language, above, line in fenced_lines(lines):
        words = line.split("#")[0].split()
        command = bool(words) and (language in SHELL or (language == "text" and guide and COMMAND.match(line)))
        if guide and language not in GUIDE_LANGUAGES:
            languages = ", ".join(sorted(GUIDE_LANGUAGES))
            yield f"{name}:{number}: error: a block of the guide is one of {languages}, not '{language}'"
        elif guide and command and language == "text" and not above.startswith(UNTESTED):
            yield f"{name}:{number}: error: a command that no test runs: use ```sh, or say above it '{UNTESTED} why'"
        if command:
            for problem in check_command(root, heddle, words):
                yield f"{name}:{number}: error: {problem}"


def main():
    parser = argparse.ArgumentParser(description="Check the documents.")
    parser.add_argument("--source", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2])
    parser.add_argument("--heddle", help="the program")
    parser.add_argument("--entries", type=pathlib.Path, help="the build's tests.json")
    arguments = parser.parse_args()
    if arguments.heddle and not os.access(arguments.heddle, os.X_OK):
        print(f"docs: {arguments.heddle} is not there: build it, or leave --heddle out")
        return 2
    root, problems, count = arguments.source.resolve(), [], 0
    tests = named_tests.Tests(root, arguments.entries)
    for path in sorted(root.rglob("*.md")):
        name = path.relative_to(root).as_posix()
        if SKIPPED.intersection(path.relative_to(root).parts):
            continue
        lines = path.read_text(encoding="utf-8").splitlines()
        problems += check_links(root, path, name, lines)
        problems += check_commands(root, arguments.heddle, name, lines)
        problems += check_references(root, name, lines)
        problems += named_tests.check(tests, name, lines)
        count += 1
    for problem in problems:
        print(problem)
    print(f"{count} documents, {len(problems)} problems")
    return 1 if problems or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
