#!/usr/bin/env python3
"""A transport's name is used only in its own folder, in the job file's reader and in documents.

A name is a word of an identifier or of a string: `allow_shm` and `MakeTcpTransport` name transports, a comment
documents one. Names and allowed places: [transports] in scripts/limits.toml. While `enforced` is false there, findings
are counted only.

Usage: transports.py [--source FOLDER] [--list]
--list prints every finding, enforced or not.
"""
import re
import sys

import cpp_units
import tree

WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")


def check_file(name, text, names):
    for token in cpp_units.tokens_of(text):
        if token.kind in ("word", "text"):
            for word in WORDS.findall(token.text):
                if word.lower() in names:
                    yield f"{name}:{token.line}: error: names the transport {word.lower()}: {token.text[:60]}"
                    break


def main():
    parser = tree.arguments(__doc__)
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    rules = tree.Rules(options.source)
    table = rules.transports
    allowed = tuple(place["path"] for place in table["allowed"])
    found, count = [], 0
    for path, name in tree.files(options.source):
        if path.suffix in tree.CPP and tree.is_product(name) and not name.startswith(allowed):
            found += check_file(name, path.read_text(encoding="utf-8"), set(table["names"]))
            count += 1
    if not table["enforced"] and not options.list:
        print(f"transports: {len(found)} names outside their places, not enforced: transports.py --list prints them")
        found = []
    return tree.report("transports", count, found)


if __name__ == "__main__":
    sys.exit(main())
