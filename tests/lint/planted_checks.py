#!/usr/bin/env python3
"""Format, threads, rooms, transports and scripts: each planted breach is found, at its line.

Usage: planted_checks.py SOURCE_FOLDER
"""
import shutil
import sys

from planted import LIMITS, SOURCE, Planted, found, run

ROOM = "# What it is. More.\nheddle_library(a DEPS base)\n"
README = "# A\n<!-- rooms -->\n| folder, low to high | what lives there |\n|---|---|\n%s<!-- /rooms -->\n"
ROOMS = {"CMakeLists.txt": "add_subdirectory(base)\nadd_subdirectory(comm)\n", "base/CMakeLists.txt": ROOM,
         "comm/CMakeLists.txt": "add_subdirectory(a)\n", "comm/a/CMakeLists.txt": ROOM}
ROWS = "| `base/` | What it is |\n| `comm/a/` | What it is |\n"


def formatting():
    style = {".clang-format": (SOURCE / ".clang-format").read_text(encoding="utf-8")}
    yield from found("format", {**style, "a.cc": "int a = 1;\n"}, [], clean=True)
    bad = {**style, "a.cc": "int a = 1;\nint  b;\n"}
    yield from found("format", bad, [("a.cc:2", "not as clang-format-14 makes it")])
    with Planted(bad) as tree:
        tree.check("format", "--fix")
        code, text = tree.check("format")
        if code != 0:
            yield f"--fix does not format: {text}"


def threads():
    file = "#include <thread>\nstd::thread a;\nstd::thread::id b;\nstd::jthread c;\n"
    both = [("comm/a.cc:2", "thread: use base/thread.h"), ("comm/a.cc:4", "thread: use base/thread.h")]
    yield from found("style", {"comm/a.cc": file}, both)
    yield from found("style", {"base/a.cc": file, "tests/a.cc": file}, [], clean=True)
    exception = LIMITS + '[[exception]]\nrule = "thread"\npath = "comm/a.cc"\nreason = "a reason in a sentence"\n'
    yield from found("style", {"comm/a.cc": file, "scripts/limits.toml": exception}, [], clean=True)
    yield from found("style", {"comm/a.cc": "int a;\n", "scripts/limits.toml": exception},
                     [("scripts/limits.toml:12", "comm/a.cc keeps the limit thread")])


def rooms():
    yield from found("rooms", {**ROOMS, "README.md": README % ROWS}, [], clean=True)
    yield from found("rooms", {**ROOMS, "README.md": README % ROWS.split("\n", maxsplit=1)[1]},
                     [("README.md:3", "this row is missing (rooms.py --write): | `base/` | What it is |")])
    yield from found("rooms", {**ROOMS, "README.md": README % (ROWS + "| `comm/b/` | What it was |\n")},
                     [("README.md:7", "no such room: | `comm/b/` | What it was |")])
    first, second = ROWS.splitlines(keepends=True)
    yield from found("rooms", {**ROOMS, "README.md": README % (second + first)},
                     [("README.md:3", "not the order of the layers")])
    yield from found("rooms", {**ROOMS, "README.md": "# A\n"}, [("README.md:1", "no table of rooms")])
    bare = {**ROOMS, "comm/a/CMakeLists.txt": "heddle_library(a)\n"}
    yield from found("rooms", {**bare, "README.md": README % "| `base/` | What it is |\n| `comm/a/` |  |\n"},
                     [("comm/a/CMakeLists.txt:1", "no comment at the top")])
    with Planted({**ROOMS, "README.md": README % ""}) as tree:
        tree.check("rooms", "--write")
        code, text = tree.check("rooms")
        if code != 0:
            yield f"--write does not write: {text}"


def transports():
    file = ('// shm in a comment\nbool allow_shm;\nauto a = "over tcp";\nint shmoo, utcp;\n'
            'void MakeTcpTransport();\nint kSHM;\n')
    expected = [(2, "shm: allow_shm"), (3, "tcp: \"over tcp\""), (5, "tcp: MakeTcpTransport"), (6, "shm: kSHM")]
    yield from found("transports", {"comm/a.cc": file},
                     [(f"comm/a.cc:{line}", f"names the transport {words}") for line, words in expected])
    yield from found("transports", {"comm/transport/a.cc": file, "tests/a.cc": file, "comm/b.cc": ""}, [], clean=True)
    silent = LIMITS.replace("enforced = true", "enforced = false")
    yield from found("transports", {"comm/a.cc": file, "scripts/limits.toml": silent}, [], clean=True)


def scripts():
    if not shutil.which("shellcheck") or not shutil.which("pyflakes3"):
        yield "shellcheck or pyflakes3 is not installed (scripts/install-dependencies)"
        return
    good = {"a": "#!/usr/bin/env bash\necho \"$1\"\n", "b.py": "import sys\nprint(sys.argv)\n"}
    yield from found("scripts", good, [], clean=True)
    yield from found("scripts", {"a": "#!/usr/bin/env bash\nb=$(ls)\ncd /x\n", "b.py": "import sys\n",
                                 "c": "#!/usr/bin/env python3\nprint(a\n"},
                     [("a:2", "SC2034"), ("a:3", "SC2164"), ("b.py:1", "'sys' imported but unused"), ("c:2", "")])
    yield from found("scripts", {"b.py": "import sys  # noqa: F401\n", "c.py": "\n"}, [], clean=True)


sys.dont_write_bytecode = True
run([formatting, threads, rooms, transports, scripts])
