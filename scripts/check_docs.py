#!/usr/bin/env python3
"""Documents that say what is there: links, commands and keys.

1. Every relative link of a Markdown file leads to a file, and an anchor in it to a heading.
2. Every command `heddle …` in a block of shell text names subcommands and options that `--help` knows; every
   script named there exists and can be run. (Only with --heddle.)
3. docs/reference/job-file.md lists exactly the keys that engine/job/job.cc reads; docs/reference/metrics.md the metrics of the sources;
   docs/reference/events.md the events of elastic/.

Usage: check_docs.py [--source FOLDER] [--heddle PROGRAM]
Prints "path:line: error: …" and exits with 1 when something is wrong.
"""
import argparse
import functools
import pathlib
import re
import subprocess
import sys

SKIPPED = {".git", "build", "runs", ".cache"}
LINK = re.compile(r"(?<!\!)\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```(\w*)\s*$")
SHELL = {"console", "sh", "bash"}


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
        if word.startswith("--") and not re.search(rf"{option}\b", known):
            yield f"heddle {' '.join(subcommands)} has no option {option}"


def check_commands(root, heddle, name, lines):
    language = None
    for number, line in enumerate(lines, 1):
        fence = FENCE.match(line)
        if fence:
            language = None if language is not None else fence.group(1)
            continue
        if language not in SHELL:
            continue
        words = line.split("#")[0].split()
        if words:
            for problem in check_command(root, heddle, words):
                yield f"{name}:{number}: error: {problem}"


def listed_names(text, pattern):
    return set(re.findall(rf"^\| `({pattern})`", text, re.MULTILINE))


def source_names(root, folders, pattern):
    names = set()
    for folder in folders:
        for path in sorted((root / folder).rglob("*.cc")):
            names.update(re.findall(pattern, path.read_text(encoding="utf-8")))
    return names


def check_lists(root):
    """Names that a document lists against those that the sources have."""
    job = (root / "engine/job/job.cc").read_text(encoding="utf-8")
    keys = set(re.findall(r'(?:Required|Optional|RequiredChoice|OptionalChoice|List|Child|OptionalChild|Children'
                          r'|PathList|OptionalPath|RequiredPath)(?:<[\w:]+>)?\(\s*"(\w+)"', job))
    documented = {part for key in listed_names((root / "docs/reference/job-file.md").read_text(), r"[\w.\[\]]+")
                  for part in re.findall(r"\w+", key)}
    produced = {
        "docs/reference/job-file.md": (keys, documented),
        "docs/reference/metrics.md": (
            source_names(root, ("metrics", "comm", "checkpoint", "planner", "engine", "elastic"),
                         r'(?:GetGauge|GetCounter|GetHistogram)\(\s*"(heddle_\w+)"'),
            listed_names((root / "docs/reference/metrics.md").read_text(), r"heddle_\w+")),
        "docs/reference/events.md": (
            source_names(root, ("elastic",), r'(?:\bLog\(|\.kind = )"(\w+)"'),
            listed_names((root / "docs/reference/events.md").read_text(), r"\w+")),
    }
    for document, (there, told) in produced.items():
        for name in sorted(there - told):
            yield f"{document}:1: error: does not list {name}"
        for name in sorted(told - there):
            yield f"{document}:1: error: lists {name}, which no source has"


def main():
    parser = argparse.ArgumentParser(description="Check the documents.")
    parser.add_argument("--source", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--heddle", help="the program")
    arguments = parser.parse_args()
    root, problems, count = arguments.source.resolve(), [], 0
    for path in sorted(root.rglob("*.md")):
        name = path.relative_to(root).as_posix()
        if SKIPPED.intersection(path.relative_to(root).parts):
            continue
        lines = path.read_text(encoding="utf-8").splitlines()
        problems += check_links(root, path, name, lines)
        problems += check_commands(root, arguments.heddle, name, lines)
        count += 1
    problems += check_lists(root)
    for problem in problems:
        print(problem)
    print(f"{count} documents, {len(problems)} problems")
    return 1 if problems or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
