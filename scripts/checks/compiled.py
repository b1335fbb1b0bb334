"""Shared by clang-tidy and the check of headers: compile commands and a cache by content."""
import concurrent.futures
import hashlib
import os
import pathlib
import re
import shlex
import subprocess
import threading
import time

import tree

ROOT = tree.ROOT
BUILD = ROOT / "build" / "tidy"
GENERATED = ["generated/elastic/protocol/protocol.pb.h", "generated/elastic/grpc/control.pb.h",
             "generated/elastic/grpc/control.grpc.pb.h", "generated/elastic/store/etcd/kv.pb.h",
             "generated/elastic/store/etcd/rpc.pb.h", "generated/elastic/store/etcd/rpc.grpc.pb.h"]
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
FILE_SECONDS_MAX = 900


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
    """Digests of a file, all headers of the tree that it includes, its command and the tool."""

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
        # The digest does not depend on the folder of the checkout.
        digest.update(command.replace(str(ROOT), "ROOT").encode())
        for file in self.closure(path):
            if file not in self.contents:
                self.contents[file] = hashlib.sha256(file.read_bytes()).digest()
            digest.update(self.contents[file])
        return digest.hexdigest()


class Cache:
    """Digests of what was clean, for all checkouts of this user; HEDDLE_LINT_CACHE names another folder."""

    def __init__(self, name):
        home = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "heddle" / "lint"
        self.folder = pathlib.Path(os.environ.get("HEDDLE_LINT_CACHE") or home) / name

    def has(self, digest):
        return (self.folder / digest).exists()

    def add(self, digest, name):
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / digest).write_text(name + "\n", encoding="utf-8")


def add_options(parser):
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="files at a time [all processors]")


def check_all(what, items, cache, check, jobs):
    """Runs check(name, timeout) -> output ("": clean) for each (name, digest); prints findings; the exit status."""
    begun = time.monotonic()
    stale = [(name, digest) for name, digest in items if not cache.has(digest)]
    found, stop = 0, threading.Event()

    def one(item):
        name, digest = item
        if stop.is_set():
            return ""
        try:
            output = check(name, FILE_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            return f"{name}:1: error: not checked within {FILE_SECONDS_MAX} s\n"
        if not output:
            cache.add(digest, name)
        return output
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        try:
            for output in pool.map(one, stale):
                if output:
                    found += 1
                    print(output.replace(str(ROOT) + "/", "").rstrip(), flush=True)
        except KeyboardInterrupt:
            stop.set()
            raise
    print(f"{what}: {len(items)} files, {len(items) - len(stale)} of them clean since before, {found} with findings, "
          f"{time.monotonic() - begun:.0f} s", flush=True)
    return 1 if found or not items else 0
