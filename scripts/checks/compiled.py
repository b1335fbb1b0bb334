"""What clang-tidy and the check of headers share: compile commands, a cache by content, and parts that take turns."""
import concurrent.futures
import hashlib
import os
import pathlib
import re
import shlex
import subprocess
import sys
import threading
import time

import tree

ROOT = tree.ROOT
BUILD = ROOT / "build" / "tidy"
GENERATED = ["generated/elastic/protocol/protocol.pb.h", "generated/elastic/grpc/control.pb.h",
             "generated/elastic/grpc/control.grpc.pb.h", "generated/elastic/store/etcd/kv.pb.h",
             "generated/elastic/store/etcd/rpc.pb.h", "generated/elastic/store/etcd/rpc.grpc.pb.h"]
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
RECENT_COMMITS = 10
RECENT_FILES_MAX = 60  # What the newest commits touched and does not fit takes turns with the rest.


def run(command, **more):
    return subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                          **more)


def configure():
    """Compile commands and generated headers. Returns what went wrong, or nothing."""
    for command in (["cmake", "--preset", "tidy"], ["cmake", "--build", str(BUILD), "--target", *GENERATED]):
        result = run(command)
        if result.returncode != 0:
            return f"{shlex.join(command)}:\n{result.stdout[-3000:]}{result.stderr[-3000:]}"
    return ""


class Digests:
    """Of a file, all headers of ours that it includes, its command and the tool."""

    def __init__(self, common):
        self.includes, self.contents, self.common = {}, {}, hashlib.sha256(common.encode())

    def closure(self, path):
        seen, queue = set(), [path]
        while queue:
            file = queue.pop()
            if file in seen:
                continue
            seen.add(file)
            if file not in self.includes:
                names = INCLUDE.findall(file.read_text(encoding="utf-8", errors="replace"))
                candidates = [base / name for name in names for base in (ROOT, BUILD / "generated", file.parent)]
                self.includes[file] = [candidate for candidate in candidates if candidate.is_file()]
            queue.extend(self.includes[file])
        return sorted(seen)

    def of(self, path, command):
        digest = self.common.copy()
        # The same sources at another place of the disk are the same sources.
        digest.update(command.replace(str(ROOT), "ROOT").encode())
        for file in self.closure(path):
            if file not in self.contents:
                self.contents[file] = hashlib.sha256(file.read_bytes()).digest()
            digest.update(self.contents[file])
        return digest.hexdigest()


def recently_changed(commit):
    """Files that differ from `commit` or that the newest commits up to it touched, as many commits as fit."""
    names = set(run(["git", "diff", "--name-only", commit]).stdout.split())
    names |= set(run(["git", "ls-files", "--others", "--exclude-standard"]).stdout.split())
    for number in range(RECENT_COMMITS):
        done = run(["git", "diff", "--name-only", "--find-renames=100%", "--diff-filter=AM", f"{commit}~{number + 1}",
                    f"{commit}~{number}"])
        if done.returncode != 0 or len(names | set(done.stdout.split())) > RECENT_FILES_MAX:
            break
        names |= set(done.stdout.split())
    return names


class Part:
    """Part P of Q (1-based) of the files, by their names, so that a file stays in its part; and the recent ones."""

    def __init__(self, text, commit="HEAD"):
        number, _, count = (text or "1/1").partition("/")
        self.number, self.count = int(number), int(count or 1)
        if not 1 <= self.number <= self.count:
            raise ValueError(f"{text}: a part is P/Q with 1 <= P <= Q")
        self.recent = recently_changed(commit) if self.count > 1 else set()

    def has(self, name):
        turn = int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) % self.count + 1
        return turn == self.number or name in self.recent


class Cache:
    """Digests of what was clean: build/NAME-cache; HEDDLE_LINT_CACHE names another folder for all of them."""

    def __init__(self, name):
        self.folder = pathlib.Path(os.environ.get("HEDDLE_LINT_CACHE") or ROOT / "build") / f"{name}-cache"

    def has(self, digest):
        return (self.folder / digest).exists()

    def add(self, digest, name):
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / digest).write_text(name + "\n", encoding="utf-8")


def add_options(parser):
    parser.add_argument("--part", default="1/1", help="P/Q: this part of the files, and those touched lately [1/1]")
    parser.add_argument("--commit", default="HEAD", help="touched lately means: by the commits that lead to this one")
    parser.add_argument("--budget", type=float, default=0, help="seconds; what is left then is a failure [no bound]")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="files at a time [all processors]")


def check_all(what, items, cache, check, options, begun):
    """Runs check(name, timeout) -> output ("": clean) for each (name, digest); prints findings; the exit status."""
    stale = [(name, digest) for name, digest in items if not cache.has(digest)]
    deadline = begun + (options.budget or 36000)
    found, left, stop = 0, 0, threading.Event()

    def one(item):
        name, digest = item
        if stop.is_set() or time.monotonic() >= deadline:
            return None
        try:
            output = check(name, max(1.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return None
        if not output:
            cache.add(digest, name)
        return output
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        try:
            for output in pool.map(one, stale):
                left += output is None
                if output:
                    found += 1
                    print(output.replace(str(ROOT) + "/", "").rstrip(), flush=True)
        except KeyboardInterrupt:
            stop.set()
            raise
    print(f"{what}: part {options.part}: {len(items)} files, {len(items) - len(stale)} of them clean since before, "
          f"{found} with findings, {left} not reached, {time.monotonic() - begun:.0f} s", flush=True)
    if left:
        print(f"{what}: {left} files were not reached in {options.budget:.0f} s", file=sys.stderr)
    return 1 if found or left or not items else 0
