#!/usr/bin/env python3
"""Headers that do not compile alone and what clang-tidy should find are found.

Usage: planted_compiled.py SOURCE_FOLDER
"""
import pathlib
import subprocess
import sys
import tempfile

from planted import SOURCE, run

sys.dont_write_bytecode = True
sys.path.insert(0, str(SOURCE / "scripts" / "checks"))
import compiled  # noqa: E402  pylint: disable=wrong-import-position,import-error
import headers  # noqa: E402  pylint: disable=wrong-import-position,import-error
import tidy  # noqa: E402  pylint: disable=wrong-import-position,import-error

TIDY = {
    "a.cc": ("struct A {\n  int size() const;\n  bool empty() const;\n};\n"
             "bool F(const A& a) {\n  return a.size() == 0;\n}\n",
             "container-size-empty"),
    "b.cc": ("void G();\nvoid F() {\n" + "  G();\n" * 60 + "}\n", "readability-function-size"),
    "c.cc": ("void bad_Name() {}\n", "readability-identifier-naming"),
    "d.cc": ("void G();\nvoid F() {\n" + "  G();\n" * 59 + "}\n", ""),
}


def header_alone():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "good.h").write_text("#pragma once\n#include <cstddef>\nstd::size_t F();\n", encoding="utf-8")
        (root / "bad.h").write_text("#pragma once\nstd::size_t F();\n", encoding="utf-8")
        good, bad = (headers.compile_alone(root, name, [], 200) for name in ("good.h", "bad.h"))
    if good:
        yield f"good.h: {good}"
    if not bad.startswith("bad.h:1: error: does not compile alone") or "bad.h:2:" not in bad:
        yield f"bad.h: {bad}"


def tidy_finds():
    with tempfile.TemporaryDirectory() as folder:
        for name, (content, finding) in TIDY.items():
            path = pathlib.Path(folder) / name
            path.write_text(content, encoding="utf-8")
            command = [tidy.TOOL, f"--config-file={SOURCE / '.clang-tidy'}", "--quiet", str(path), "--", "-std=c++20"]
            found = tidy.findings(command, set(), 200)
            if bool(found) != bool(finding) or finding not in found:
                yield f"{name}: expected '{finding}', got '{found}'"
            if finding == "readability-function-size" and tidy.findings(command, {"F"}, 200):
                yield "a function that scripts/limits.toml excepts is found"


def digests():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "a.h").write_text('#include "b.h"\n', encoding="utf-8")
        (root / "b.h").write_text("int b;\n", encoding="utf-8")
        before = compiled.Digests("1").of(root / "a.h", "command")
        if compiled.Digests("1").of(root / "a.h", "command") != before:
            yield "a digest does not repeat"
        for tool, command in (("2", "command"), ("1", "other")):
            if compiled.Digests(tool).of(root / "a.h", command) == before:
                yield f"a digest is the same with tool {tool} and command {command}"
        (root / "b.h").write_text("int c;\n", encoding="utf-8")
        if compiled.Digests("1").of(root / "a.h", "command") == before:
            yield "a digest is the same although an included header changed"


class NoCache:
    def __init__(self, clean=()):
        self.clean, self.added = clean, []

    def has(self, digest):
        return digest in self.clean

    def add(self, digest, _):
        self.added.append(digest)


def verdicts():
    items = [("a.h", "1"), ("b.h", "2"), ("c.h", "3")]

    def check(name, _):
        return "b.h:1: error: planted" if name == "b.h" else ""
    cache = NoCache(clean=("3",))
    if compiled.check_all("planted", items, cache, check, 1) != 1 or cache.added != ["1"]:
        yield f"a finding: {cache.added}"
    if compiled.check_all("planted", items, NoCache(clean=("2",)), check, 1) != 0:
        yield "clean files are not clean"

    def late(name, timeout):
        raise subprocess.TimeoutExpired(name, timeout)
    if compiled.check_all("planted", items[:1], NoCache(), late, 1) != 1:
        yield "a file that was not checked in time is no failure"


def entry():
    lint = str(SOURCE / "scripts" / "lint")
    for arguments, code in ((["--no-such-option"], 2), (["--help"], 0)):
        done = subprocess.run([sys.executable, lint, *arguments], capture_output=True, text=True, timeout=120,
                              check=False)
        if done.returncode != code:
            yield f"lint {' '.join(arguments)}: exit status {done.returncode}, expected {code}: {done.stderr}"


run([header_alone, tidy_finds, digests, verdicts, entry])
