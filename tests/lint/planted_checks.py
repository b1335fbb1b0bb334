#!/usr/bin/env python3
"""Format, threads, modules, transports and scripts: each planted breach is found, at its line.

Usage: planted_checks.py SOURCE_FOLDER
"""
import shutil
import sys

from planted import LIMITS, SOURCE, Planted, found, run

MODULE = "# What it holds. More.\nheddle_library(a DEPS base)\n"
TABLE = "<!-- modules -->\n| %s | what it holds |\n|---|---|\n%s<!-- /modules -->\n"
TOP_ROWS = "| [comm/](comm/README.md) | Messages |\n| [base/](base/README.md) | What others use |\n"
BASE_ROW = "| `base/` | What it holds |\n"
ROWS = "| `comm/` | What it holds |\n| `comm/a/` | What it holds |\n"


def modules_tree(**changed):
    """Three modules in two top folders, with their tables; `changed` files replace those of the same path."""
    files = {"base/CMakeLists.txt": MODULE, "comm/CMakeLists.txt": MODULE, "comm/a/CMakeLists.txt": MODULE,
             "README.md": "# A\n\n" + TABLE % ("folder", TOP_ROWS),
             "base/README.md": "# base\n\nWhat others use. More.\n\n" + TABLE % ("module", BASE_ROW),
             "comm/README.md": "# comm\n\nMessages.\n\n" + TABLE % ("module", ROWS)}
    return {**files, **changed}


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


def modules():
    yield from found("modules", modules_tree(), [], clean=True)

    def comm(rows):
        return {"comm/README.md": "# comm\n\nMessages.\n\n" + TABLE % ("module", rows)}
    first, second = ROWS.splitlines(keepends=True)
    yield from found("modules", modules_tree(**comm(first)),
                     [("comm/README.md:6", "this row is missing (modules.py --write): | `comm/a/` | What it holds |")])
    yield from found("modules", modules_tree(**comm(ROWS + "| `comm/b/` | What it held |\n")),
                     [("comm/README.md:10", "no such module: | `comm/b/` | What it held |")])
    yield from found("modules", modules_tree(**comm(second + first)), [("comm/README.md:6", "in another order")])
    yield from found("modules", modules_tree(**{"README.md": "# A\n"}), [("README.md:1", "no table of modules")])
    wrong = {"README.md": "# A\n\n" + TABLE % ("folder", TOP_ROWS.replace("others", "we"))}
    yield from found("modules", modules_tree(**wrong),
                     [("README.md:4", "| What others use |"), ("README.md:7", "no such module: | [base/]")])
    bare = comm(first + "| `comm/a/` |  |\n")
    yield from found("modules", modules_tree(**bare, **{"comm/a/CMakeLists.txt": "heddle_library(a)\n"}),
                     [("comm/a/CMakeLists.txt:1", "no comment at the top")])
    silent = {"base/README.md": TABLE % ("module", BASE_ROW)}
    top = {"README.md": "# A\n\n" + TABLE % ("folder", TOP_ROWS.replace("What others use", ""))}
    yield from found("modules", modules_tree(**silent, **top), [("base/README.md:1", "no sentence below the title")])
    with Planted(modules_tree(**comm(""), **{"README.md": "# A\n" + TABLE % ("folder", "")})) as tree:
        tree.check("modules", "--write")
        code, text = tree.check("modules")
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
run([formatting, threads, modules, transports, scripts])
