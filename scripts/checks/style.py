#!/usr/bin/env python3
"""Rules that are quick to check and that no compiler checks.

A line is excused by a comment on it, or on the line before: "lint: allow RULE: reason". Files that make threads of
their own are exceptions of scripts/limits.toml.

Usage: style.py [--source FOLDER]
Prints "path:line: error: …" and exits with 1 when a rule is broken.
"""
import re
import sys

import tree

CODE = tree.CPP
TEXT = CODE | {".py", ".cmake", ".yaml", ".yml", ".md", ".proto", ".html", ".sh", ".txt", ".in"}
LINE_MAX = 120
FILE_BYTES_MAX = 500_000

# Rule: pattern in a line of product code, and where it is allowed.
BANNED = {
    "sleep": (re.compile(r"\b(sleep_for|sleep_until|usleep|nanosleep)\s*\("), (),
              "wait for a condition with a deadline"),
    "mutex": (re.compile(r"\bstd::(recursive_|shared_|timed_)?mutex\b|\bstd::condition_variable"), ("base/",),
              "use base/mutex.h"),
    "thread": (re.compile(r"\bstd::j?thread\b(?!::id)|\bpthread_create\b|\bstd::async\b"), ("base/",),
               "use base/thread.h"),
    "detach": (re.compile(r"\.detach\(\)"), (), "join every thread: base/thread.h does"),
    "stdout": (re.compile(r"\bstd::(cout|cerr|clog)\b|\b(printf|puts)\s*\("), ("cli/",),
               "use base/log.h or return text"),
    "rand": (re.compile(r"\b(std::)?(rand|srand|random_device|mt19937(_64)?)\b\s*[({]"), (), "use base/random.h"),
    "assert": (re.compile(r"(?<![_\w])assert\s*\("), (), "use HEDDLE_CHECK"),
    "throw": (re.compile(r"^\s*throw\s+(?!;)"), (), "return a Status"),
    "namespace": (re.compile(r"^\s*using namespace\b"), (), "name what is used"),
}
# The words are split, so that the rule does not find this line.
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
CONFLICT = re.compile(r"(<{7}|>{7}) |={7}$")
ALLOW = re.compile(r"lint: allow (\w+): \S")


def allowed(lines, index):
    """Rules that the line and the one before it excuse."""
    return {name for line in lines[max(0, index - 1): index + 1] for name in ALLOW.findall(line)}


def without_strings(line):
    return re.sub(r'"(\\.|[^"\\])*"', '""', line)


def check_lines(name, suffix, lines, rules):
    product = tree.is_product(name) and suffix in CODE
    for index, line in enumerate(lines):
        excused = allowed(lines, index)
        if "\t" in line and "tab" not in excused:
            yield index, "a tab: indent with spaces"
        if line != line.rstrip():
            yield index, "white space at the end of the line"
        if CONFLICT.match(line):
            yield index, "a mark of a merge conflict: resolve it"
        if suffix in CODE | {".py"} and len(line) > LINE_MAX and "length" not in excused:
            yield index, f"{len(line)} columns, at most {LINE_MAX}"
        if suffix in CODE | {".py", ".cmake"} and UNFINISHED.search(line) and "todo" not in excused:
            yield index, "unfinished business in a comment: finish it or write an issue"
        if not product:
            continue
        code = without_strings(line).split("//")[0]
        for rule, (pattern, places, advice) in BANNED.items():
            if not pattern.search(code) or name.startswith(tuple(places)) or rule in excused:
                continue
            if rule != "thread" or not rules.excused(rule, name, ""):
                yield index, f"{rule}: {advice}"


def check_file(path, name, rules):
    if path.stat().st_size > FILE_BYTES_MAX:
        yield f"{name}:1: error: more than {FILE_BYTES_MAX} bytes"
        return
    if path.suffix not in TEXT and path.name != "CMakeLists.txt":
        return
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        yield f"{name}:1: error: not UTF-8"
        return
    lines = text.split("\n")
    if text and lines.pop() != "":
        yield f"{name}:{len(lines) + 1}: error: no newline at the end of the file"
    if path.suffix == ".h" and "#pragma once" not in lines:
        yield f"{name}:1: error: no #pragma once"
    if path.suffix == ".h" and tree.is_product(name) and not text.startswith("/// \\file"):
        yield f"{name}:1: error: a header starts with its file comment (/// \\file)"
    for index, problem in check_lines(name, path.suffix, lines, rules):
        yield f"{name}:{index + 1}: error: {problem}"
    if name.startswith("tests/") and name.endswith("_test.cc"):
        registered = path.parent / "CMakeLists.txt"
        words = registered.read_text(encoding="utf-8").split() if registered.is_file() else []
        stem = path.name[: -len("_test.cc")]
        by_glob = any("*_test.cc" in word for word in words)
        by_name = any(word.strip("()") in (stem, f"heddle_test({stem}") for word in words)
        if not by_glob and not by_name:
            yield f"{name}:1: error: no CMakeLists.txt beside it registers this test"


def main():
    options = tree.arguments(__doc__).parse_args()
    rules, problems, count = tree.Rules(options.source), [], 0
    for path, name in tree.files(options.source):
        # Inputs of fuzzers and golden files may have any content.
        if "_corpus/" in name or "/golden/" in name:
            continue
        problems.extend(check_file(path, name, rules))
        count += 1
    problems += rules.unused(["thread"])
    return tree.report("style", count, problems)


if __name__ == "__main__":
    sys.exit(main())
