#!/usr/bin/env python3
"""Runs clang-tidy on all sources except those of folders that need libtorch.

A file that was clean is not checked again until it, a header of the tree that it includes, its compile command or
.clang-tidy changes (scripts/lint names the folder of the cache).

Usage: tidy.py [--jobs N] [FILE…]
Exit status: 0 nothing found, 1 something found, 2 it could not run.
"""
import argparse
import json
import pathlib
import re
import sys

import compiled
import tree

# Folders whose files include no libtorch. Tests are left out, because GoogleTest's macros have another style.
FOLDERS = ("base/", "metrics/", "comm/", "engine/graph/", "engine/program/", "engine/data/", "engine/job/",
           "checkpoint/", "planner/", "elastic/")
TOOL = "clang-tidy-14"
# "path:line:column: error: function 'Name' exceeds …", and the notes below it.
TOO_LONG = re.compile(r"^\S+?:\d+:\d+: error: function '([^']+)' exceeds recommended size.*\[readability-function-size")
FINDING = re.compile(r"(?m)^\S+?:\d+:\d+: (error|warning): ")


def without_excused(output, excused):
    """Without findings about functions that scripts/limits.toml excepts."""
    kept, dropping = [], False
    for line in output.splitlines(keepends=True):
        if FINDING.match(line):
            too_long = TOO_LONG.match(line)
            dropping = bool(too_long) and too_long.group(1) in excused
        if not dropping:
            kept.append(line)
    return "".join(kept)


def findings(command, excused, timeout):
    """The output of clang-tidy, "" for none."""
    done = compiled.run(command, timeout=timeout)
    found = without_excused(done.stdout, excused)
    if done.returncode == 0 or (found != done.stdout and not FINDING.search(found)):
        return ""
    lines = [line for line in done.stderr.splitlines() if not re.match(r"^\d+ warnings? ", line)]
    return found + ("" if "error:" in found else "\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description="Run clang-tidy on what has changed.")
    parser.add_argument("files", nargs="*", help="only these, from the repository's root")
    compiled.add_options(parser)
    options = parser.parse_args()
    problem = compiled.configure()
    if problem:
        print(f"tidy: {problem}", file=sys.stderr)
        return 2
    rules = tree.Rules(tree.ROOT)
    excused = {exception["name"].rpartition("::")[2] for exception in rules.exceptions
               if exception["rule"] == "function_lines"}
    common = compiled.run([TOOL, "--version"]).stdout + (tree.ROOT / ".clang-tidy").read_text(encoding="utf-8")
    digests = compiled.Digests(common)
    items = {}
    for entry in json.loads((compiled.BUILD / "compile_commands.json").read_text(encoding="utf-8")):
        path = pathlib.Path(entry["file"])
        if not path.is_relative_to(tree.ROOT) or not path.is_file():
            continue
        name = path.relative_to(tree.ROOT).as_posix()
        if name.startswith(FOLDERS) and (not options.files or name in options.files):
            items[name] = digests.of(path, entry["command"])

    def check(name, timeout):
        return findings([TOOL, "-p", str(compiled.BUILD), "--quiet", name], excused, timeout)
    return compiled.check_all("tidy", sorted(items.items()), compiled.Cache("tidy"), check, options.jobs)


if __name__ == "__main__":
    sys.exit(main())
