"""What the tests of the lint share: small trees in which each breach is planted, and what a check says of them."""
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(sys.argv[1]).resolve()
LIMITS = """[limits]
file_lines = 400
function_lines = 60
class_methods = 25
class_fields = 20
folder_files = 25

[transports]
names = ["shm", "tcp"]
enforced = true
allowed = [{path = "comm/transport/", why = "the transports themselves"}]
"""


class Planted:
    """A tree of the given files, gone after `with`; check() runs a check on it."""

    def __init__(self, files):
        self.files = {"scripts/limits.toml": LIMITS, **files}

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="heddle-planted-")
        for name, content in self.files.items():
            path = pathlib.Path(self.folder.name) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    def check(self, name, *options):
        """(exit status, what it printed)."""
        done = subprocess.run([sys.executable, str(SOURCE / "scripts" / "checks" / f"{name}.py"), "--source",
                               self.folder.name, *options], capture_output=True, text=True, timeout=120, check=False)
        return done.returncode, done.stdout + done.stderr


def run(cases):
    """Runs functions that return what is wrong, or nothing; exits."""
    failures = []
    for case in cases:
        failures += [f"{case.__name__}: {problem}" for problem in case() or ()]
    for failure in failures:
        print(failure)
    sys.exit(1 if failures else 0)


def found(name, files, expected, *options, clean=False):
    """What is wrong: each expected place must begin a line that has the words, and no other finding is printed."""
    with Planted(files) as tree:
        code, text = tree.check(name, *options)
    lines = text.splitlines()
    if code != (0 if clean else 1):
        yield f"exit status {code}: {text}"
    for place, words in expected:
        if not any(line.startswith(f"{place}: error: ") and words in line for line in lines):
            yield f"not found: {place}: {words}; got {text}"
    unexpected = [line for line in lines if ": error: " in line and not any(
        line.startswith(f"{place}: error: ") and words in line for place, words in expected)]
    if unexpected:
        yield f"found without reason: {unexpected}"
