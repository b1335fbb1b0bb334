#!/usr/bin/env python3
"""A subcommand or an option that docs/reference/commands.md lacks, or has too much, is found.

Usage: planted_commands.py SOURCE_FOLDER PROGRAM
"""
import pathlib
import re
import subprocess
import sys
import tempfile

DOCUMENT = "docs/reference/commands.md"
# (what is planted, damage to the document, a line of the difference that must be shown)
PLANTED = [
    ("an option is missing", lambda text: re.sub(r"^\| `--store VALUE` \|.*\n", "", text, flags=re.MULTILINE),
     "+| `--store VALUE` |"),
    ("an argument is missing", lambda text: re.sub(r"^\| `NODE` \|.*\n", "", text, flags=re.MULTILINE), "+| `NODE` |"),
    ("a subcommand is missing", lambda text: re.sub(r"^## heddle data\n.*?(?=^## )", "", text, flags=re.M | re.S),
     "+## heddle data"),
    ("an option is made up", lambda text: text.replace("| `--explain` |", "| `--colour` | | none |\n| `--explain` |"),
     "-| `--colour` |"),
    ("a meaning has changed", lambda text: text.replace("Only say which would go", "Nothing"),
     "Only say which would go"),
]


def main():
    source, program = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
    text = (source / DOCUMENT).read_text(encoding="utf-8")
    failures = []
    for what, damage, _ in PLANTED:
        damaged = damage(text)
        if damaged == text:
            failures.append(f"cannot be planted: {what}")
        text = damaged
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / DOCUMENT
        path.parent.mkdir(parents=True)
        path.write_text(text, encoding="utf-8")
        done = subprocess.run([str(source / "scripts/reference"), "--check", "--source", folder, "--heddle", program],
                              capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 1:
        failures.append(f"exit status {done.returncode}: {done.stderr}")
    failures += [f"not found: {what}" for what, _, line in PLANTED if line not in done.stdout]
    for failure in failures:
        print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
