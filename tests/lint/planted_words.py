#!/usr/bin/env python3
"""Each word that is kept out is found where it is planted in a clean folder, and nothing else is.

Usage: planted_words.py SOURCE_FOLDER
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile

# (path, content, line, part of the message); None as message: no error.
PLANTED = [
    ("docs/a.md", "A\nworker has a door.\n", 2, "'door': say listener"),
    ("docs/b.md", "It has several Doors.\n", 1, "'Doors': say listener"),
    ("docs/c.md", "Bytes on their way are told so.\n", 1, None),
    ("docs/d.md", "Use `WayName` of a transport.\n", 1, "'WayName': say route"),
    ("docs/e.md", "A part of a snapshot is sent.\n", 1, "'part of a snapshot': say shard"),
    ("docs/f.md", "Discard the keyboard's cardinality, doorbell or planes.\n", 1, None),
    ("base/a.h", "int own_bell_ = 0;\n", 1, "'own_bell_': say notification"),
    ("base/b.h", "struct OwnDoor;\n", 1, "'OwnDoor': say listener"),
    ("base/c.h", "// Another way to be told.\nint a;\n", 1, None),
    ("base/d.cc", "int ways = kDoorTime;\n", 1, "'ways': say route"),
    ("base/e.cc", 'Log("no way in");\n', 1, None),
    ("base/f.cc", "Told(card);\n", 1, "'card': say call signature"),
    ("base/g.py", '"""Both\nways."""\nkeeper = 1\n', 3, "'keeper': say holder"),
    ("comm/a.h", "struct Lane;\n", 1, None),
    ("engine/runtime/kernels/a.cc", "constexpr int kLanes = 8;\n", 1, None),
    ("engine/graph/a.cc", "constexpr int kLanes = 8;\n", 1, "'kLanes': say slot"),
]


def main():
    source = pathlib.Path(sys.argv[1])
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, content, _, _ in PLANTED:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(content, encoding="utf-8")
        (root / "scripts").mkdir()
        shutil.copy(source / "scripts/words.txt", root / "scripts/words.txt")
        # Of folders that may be called clean later, the test needs one that is not.
        words = (root / "scripts/words.txt").read_text(encoding="utf-8")
        (root / "scripts/words.txt").write_text(words.replace("clean comm/\n", ""), encoding="utf-8")
        done = subprocess.run([sys.executable, str(source / "scripts/checks/words.py"), "--source", folder],
                              capture_output=True, text=True, timeout=30, check=False)
        if done.returncode != 1:
            failures.append(f"exit status {done.returncode}: {done.stderr}")
        for name, _, line, message in PLANTED:
            found = [text for text in done.stdout.splitlines() if text.startswith(name + ":")]
            if message is None and found:
                failures.append(f"found without reason: {found}")
            if message is not None and not any(text.startswith(f"{name}:{line}: error: {message}") for text in found):
                failures.append(f"not found: {name}:{line}: {message}; got {found}")
        if "comm: 1 words to be renamed" not in done.stdout:
            failures.append(f"not counted: {done.stdout}")
    for failure in failures:
        print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
