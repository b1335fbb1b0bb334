"""Shared by the checks: the tree's files, the numbers and lists of scripts/limits.toml, how problems are printed."""
import argparse
import pathlib
import subprocess
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PRODUCT = ("base", "metrics", "comm", "engine", "checkpoint", "planner", "elastic", "cli")
CPP = {".h", ".cc", ".cpp", ".hpp", ".cu", ".cuh"}
SKIPPED = {".git", "build", "runs", "__pycache__", ".cache"}


def files(root):
    """(path, name) of every file that git tracks or does not ignore; outside a repository, of every file."""
    if (root / ".git").exists():
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=root, check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                timeout=60).stdout
        paths = sorted({root / name for name in listed.split("\0") if name})
    else:
        paths = sorted(path for path in root.rglob("*") if not SKIPPED.intersection(path.relative_to(root).parts))
    for path in paths:
        if path.is_file() and not path.is_symlink():
            yield path, path.relative_to(root).as_posix()


def interpreter(path):
    """"bash", "python3", … of a script's first line; "" for any other file."""
    with open(path, "rb") as file:
        line = file.readline(200)
    if not line.startswith(b"#!"):
        return ""
    words = line[2:].decode("utf-8", "replace").split()
    return words[-1].rsplit("/", 1)[-1] if words else ""


def is_product(name):
    return name.startswith(tuple(top + "/" for top in PRODUCT))


class Rules:
    """scripts/limits.toml, and which of its exceptions were used."""

    def __init__(self, root):
        path = root / "scripts" / "limits.toml"
        self.name = path.relative_to(root).as_posix()
        self.text = path.read_text(encoding="utf-8")
        data = tomllib.loads(self.text)
        self.limits, self.transports = data["limits"], data.get("transports", {})
        self.exceptions = data.get("exception", [])
        self.used = set()

    def excused(self, rule, path, what):
        """Whether an exception names this; the check that asks for every `rule` calls unused() at its end."""
        for number, exception in enumerate(self.exceptions):
            if (exception.get("rule"), exception.get("path"), exception.get("name", "")) == (rule, path, what):
                self.used.add(number)
                return True
        return False

    def unused(self, rules):
        for number, exception in enumerate(self.exceptions):
            line = 1 + [index for index, text in enumerate(self.text.split("\n")) if text == "[[exception]]"][number]
            named = " ".join(filter(None, (exception.get("path"), exception.get("name"))))
            if exception.get("rule") not in rules:
                continue
            if number not in self.used:
                yield f"{self.name}:{line}: error: {named} keeps the limit {exception['rule']}: it needs no exception"
            if len(exception.get("reason", "")) < 12:
                yield f"{self.name}:{line}: error: {named} is excepted without a sentence that says why"


def arguments(description):
    parser = argparse.ArgumentParser(description=description.strip().split("\n")[0])
    parser.add_argument("--source", type=pathlib.Path, default=ROOT, help="the root of the tree")
    return parser


def report(what, count, problems):
    """Prints the problems and a summary; the exit status."""
    for problem in problems:
        print(problem)
    print(f"{what}: {count} files, {len(problems)} problems")
    return 1 if problems or count == 0 else 0
