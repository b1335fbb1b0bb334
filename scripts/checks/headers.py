#!/usr/bin/env python3
"""Every header compiles alone, because it includes what it needs.

A header that was clean is not compiled again until it or a header of the tree that it includes changes (scripts/lint
names the folder of the cache). Headers that need libtorch are left out if it is not installed.

Usage: headers.py [--jobs N] [FILE…]
Exit status: 0, 1 a header does not compile, 2 it could not run.
"""
import argparse
import json
import pathlib
import re
import shlex
import subprocess
import sys

import compiled
import tree

# GCC, because Clang 14 cannot parse libtorch's headers as C++20. -w, because the build reports warnings.
TOOL = ["g++", "-std=c++20", "-fsyntax-only", "-w", "-x", "c++", "-fopenmp"]
TORCH = re.compile(r"<(torch|ATen|c10)/")
TORCH_HEADER = pathlib.Path("/usr/include/ATen/ATen.h")


def flags_of(entries):
    """All include folders and definitions of the compile commands, each once."""
    flags = {}
    for entry in entries:
        words = shlex.split(entry["command"])
        for index, word in enumerate(words):
            if word in ("-isystem", "-I"):
                flags[(word, words[index + 1])] = None
            elif word.startswith(("-I", "-D")) and len(word) > 2:
                flags[(word,)] = None
    return [word for flag in flags for word in flag]


def compile_alone(root, name, flags, timeout):
    """The compiler's errors, "" for none. An empty source includes the header by its path from the root."""
    done = subprocess.run([*TOOL, *flags, "-I", str(root), "-"], cwd=root, input=f'#include "{name}"\n', check=False,
                          timeout=timeout, capture_output=True, text=True)
    if done.returncode == 0:
        return ""
    errors = [line for line in done.stderr.splitlines() if re.match(r"\S+:\d+:\d+: (fatal )?error: ", line)]
    return "\n".join([f"{name}:1: error: does not compile alone", *(errors or [done.stderr[-2000:]])])


def main():
    parser = argparse.ArgumentParser(description="Compile each header alone.")
    parser.add_argument("files", nargs="*", help="only these, from the repository's root")
    compiled.add_options(parser)
    options = parser.parse_args()
    problem = compiled.configure()
    if problem:
        print(f"headers: {problem}", file=sys.stderr)
        return 2
    flags = flags_of(json.loads((compiled.BUILD / "compile_commands.json").read_text(encoding="utf-8")))
    version = compiled.run(["g++", "--version"]).stdout
    digests = compiled.Digests(version + " ".join(TOOL))
    has_torch, items = TORCH_HEADER.exists(), []
    for path, name in tree.files(tree.ROOT):
        if path.suffix != ".h" or (options.files and name not in options.files):
            continue
        if not has_torch and any(TORCH.search(file.read_text(encoding="utf-8")) for file in digests.closure(path)):
            continue
        items.append((name, digests.of(path, "")))

    def check(name, timeout):
        return compile_alone(tree.ROOT, name, flags, timeout)
    return compiled.check_all("headers", items, compiled.Cache("headers"), check, options.jobs)


if __name__ == "__main__":
    sys.exit(main())
