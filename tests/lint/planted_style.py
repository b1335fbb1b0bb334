#!/usr/bin/env python3
"""Each breach of style that is planted in an empty tree is found, at its line, and excuses work.

Usage: planted_style.py SOURCE_FOLDER
"""
import pathlib
import subprocess
import sys
import tempfile

UNFINISHED = "TO" + "DO"

# (path, content, line, part of the message); None as message: nothing is found.
PLANTED = [
    ("comm/a.cc", "int a;\n\tint b;\n", 2, "a tab"),
    ("comm/b.cc", "int a; \n", 1, "white space"),
    ("comm/c.cc", "//" + "x" * 119 + "\n", 1, "121 columns"),
    ("comm/d.cc", "void F() { std::this_thread::sleep_for(x); }\n", 1, "sleep:"),
    ("comm/e.cc", "std::mutex m;\n", 1, "mutex:"),
    ("base/e.cc", "std::mutex m;\n", 1, None),
    ("planner/f.cc", "void F() { std::cout << 1; }\n", 1, "stdout:"),
    ("cli/f.cc", "void F() { std::cout << 1; }\n", 1, None),
    ("comm/g.cc", f"// {UNFINISHED}: later\n", 1, "unfinished"),
    ("comm/h.h", "/// \\file\nint a;\n", 1, "no #pragma once"),
    ("comm/i.h", "#pragma once\n", 1, "file comment"),
    ("comm/j.cc", "int a;", 1, "no newline"),
    ("comm/k.cc", "  throw Error();\n", 1, "throw:"),
    ("comm/l.cc", "// lint: allow throw: a reason\n  throw Error();\n", 2, None),
    ("comm/m.cc", "// lint: allow throw:\n  throw Error();\n", 2, "throw:"),
    ("comm/n.cc", 'const char* a = "std::mutex"; // std::mutex\n', 1, None),
    ("comm/o.cc", "void F() { fmt::print(a); snprintf(b); }\n", 1, None),
    ("comm/p.cc", "thread.detach();\n", 1, "detach:"),
    ("docs/r.md", "a\n" + "<" * 7 + " HEAD\n", 2, "a merge conflict"),
    ("docs/s.md", "a\n" + "=" * 7 + "\nb\n", 2, "a merge conflict"),
    ("tests/comm/q_test.cc", "int a;\n", 1, "registers this test"),
]


def main():
    script = pathlib.Path(sys.argv[1]) / "scripts/checks/style.py"
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "scripts").mkdir()
        (root / "scripts/limits.toml").write_text("[limits]\n", encoding="utf-8")
        for name, content, _, _ in PLANTED:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(content, encoding="utf-8")
        command = [sys.executable, str(script), "--source", folder]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        if done.returncode != 1:
            failures.append(f"exit status {done.returncode}")
        for name, _, line, message in PLANTED:
            found = [text for text in done.stdout.splitlines() if text.startswith(name + ":")]
            if message is None and found:
                failures.append(f"found without reason: {found}")
            if message is not None and not any(text.startswith(f"{name}:{line}: error: ") and message in text
                                               for text in found):
                failures.append(f"not found: {name}:{line}: {message}; got {found}")
    for failure in failures:
        print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
