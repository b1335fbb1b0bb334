#!/usr/bin/env python3
"""Every C++ file is as clang-format makes it.

Usage: format.py [--source FOLDER] [--fix]
Exit status: 0, 1 a file differs, 2 clang-format-14 is missing.
"""
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys

import tree

TOOL = "clang-format-14"
BATCH = 40
PLACE = re.compile(r"^(\S+?):(\d+):\d+: error: code should be clang-formatted")


def main():
    parser = tree.arguments(__doc__)
    parser.add_argument("--fix", action="store_true", help="format them")
    options = parser.parse_args()
    if not shutil.which(TOOL):
        print(f"format: {TOOL} is not installed", file=sys.stderr)
        return 2
    names = [name for path, name in tree.files(options.source) if path.suffix in tree.CPP and "_corpus/" not in name]
    mode = ["-i"] if options.fix else ["--dry-run", "-Werror"]

    def run(batch):
        return subprocess.run([TOOL, "--style=file", *mode, *batch], cwd=options.source, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=300, check=False)
    lines, problems = {}, []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for done in pool.map(run, [names[at:at + BATCH] for at in range(0, len(names), BATCH)]):
            found = [PLACE.match(line) for line in done.stderr.splitlines()]
            for place in filter(None, found):
                lines.setdefault(place.group(1), place.group(2))
            if done.returncode != 0 and not any(found):
                problems.append(f"format: {done.stderr[-1000:]}")
    for name, line in lines.items():
        problems.append(f"{name}:{line}: error: not as {TOOL} makes it (scripts/lint --fix-format)")
    return tree.report("format", len(names), problems)


if __name__ == "__main__":
    sys.exit(main())
