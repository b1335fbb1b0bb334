"""Builds test programs whose sources carry many switched faults.

Only the touched sources are compiled anew, from mutated copies, and only the programs that link them are linked anew,
with the commands of the build folder. The checkout and the build folder are not changed; everything is written below
one folder.
"""
import concurrent.futures
import json
import os
import re
import shlex
import shutil
import subprocess

GUARD = r'''
#include <cstdlib>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
int heddle_mutant_id = 0;
unsigned char* heddle_mutant_seen = nullptr;
// One shared page of bytes: what a killed or forked process reached counts, too.
__attribute__((constructor(101))) static void HeddleMutantStart() {
  if (const char* id = std::getenv("HEDDLE_MUTANT")) {
    heddle_mutant_id = std::atoi(id);
  }
  if (const char* path = std::getenv("HEDDLE_MUTANT_COVERAGE")) {
    const int file = open(path, O_RDWR | O_CLOEXEC);
    if (file >= 0) {
      void* seen = mmap(nullptr, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
      if (seen != MAP_FAILED) {
        heddle_mutant_seen = static_cast<unsigned char*>(seen);
      }
      close(file);
    }
  }
}
'''
HEAD = ('extern int heddle_mutant_id; extern unsigned char* heddle_mutant_seen; '
        '[[maybe_unused]] static inline bool heddle_mutant(int id) { '
        'if (__builtin_expect(heddle_mutant_seen != nullptr, 0)) { heddle_mutant_seen[id] = 1; } '
        'return __builtin_expect(heddle_mutant_id == id, 0); }\n#line 1 "%s"\n')


def plant(source, mutants):
    """The source with every mutant behind its number. Only the original text of a range holds further mutants."""
    by_range = {}
    for mutant in mutants:
        by_range.setdefault((mutant["start"], -mutant["end"]), []).append(mutant)
    ranges = sorted(by_range)

    def render(start, end, index):
        """Text of [start, end) with the ranges from number `index` on, and the number of the first unused range."""
        text, at = [], start
        while index < len(ranges) and ranges[index][0] < end:
            first, last = ranges[index][0], -ranges[index][1]
            here = by_range[ranges[index]]
            text.append(source[at:first].decode())
            inner, index = render(first, last, index + 1)
            for mutant in here:
                if mutant["form"] == "statement":
                    inner = f"if (heddle_mutant({mutant['id']})) {{ {mutant['replacement']} }} else {{ {inner} }}"
                else:
                    inner = f"(heddle_mutant({mutant['id']}) ? ({mutant['replacement']}) : ({inner}))"
            text.append(inner)
            at = last
        text.append(source[at:end].decode())
        return "".join(text), index

    return render(0, len(source), 0)[0]


class Build:
    """A configured build folder, and what is built beside it."""

    def __init__(self, root, folder, work, jobs):
        self.root, self.folder, self.work, self.jobs = root, folder, work, jobs
        self.ninja("build.ninja")  # Sources were added or removed.
        with open(folder / "compile_commands.json") as file:
            self.entries = {e["file"]: e for e in json.load(file)}
        self.programs = {}  # From a program's path in the build folder to that of its copy.
        self.complaints = {}  # By source: the compiler's first error about faults that do not compile.

    def ninja(self, *words):
        command = ["ninja", "-C", str(self.folder), "-j", str(self.jobs), *words]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def tool(self, *words):
        command = ["ninja", "-C", str(self.folder), "-t", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def products(self):
        """Every compiled .cc, by path below the root, but tests, benchmarks and generated files."""
        paths = (os.path.relpath(f, self.root) for f in self.entries)
        outside = ("..", "tests/", "benchmarks/", os.path.relpath(self.folder, self.root) + "/", "build/")
        return sorted(p for p in paths if p.endswith(".cc") and not p.startswith(outside))

    def clang_arguments(self, path):
        words = shlex.split(self.entries[str(self.root / path)]["command"])
        kept = ["-Wno-everything"]
        for number, word in enumerate(words):
            if word in ("-isystem", "-I", "-D"):
                kept += [word, words[number + 1]]
            elif re.match(r"-(I|D|isystem|std=).", word):
                kept.append(word)
        return kept

    def object_of(self, path):
        entry = self.entries[str(self.root / path)]
        words = shlex.split(entry["command"])
        return os.path.normpath(words[words.index("-o") + 1])

    def compile(self, path, mutants):
        """Compiles the copy without the mutants that do not compile. Returns those that are in, and the object."""
        entry = self.entries[str(self.root / path)]
        words = shlex.split(entry["command"])
        copy = self.work / "tree" / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        made = self.work / "objects" / self.object_of(path)
        made.parent.mkdir(parents=True, exist_ok=True)
        words[words.index("-o") + 1] = str(made)
        words = [str(copy) if w == entry["file"] else w for w in words]
        words = [w for w in words if w not in ("-Werror", "-MD")]
        for option in ("-MF", "-MT"):
            while option in words:
                at = words.index(option)
                del words[at:at + 2]
        words += ["-O1", "-w", "-Wno-narrowing"]  # A constant behind a switch is not constant to the compiler.
        source = (self.root / path).read_bytes()
        left = list(mutants)
        for _ in range(6):
            copy.write_text(HEAD % path + plant(source, left))
            done = subprocess.run(words, cwd=entry["directory"], capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return left, made
            self.complaints.setdefault(path, done.stderr)
            found = re.finditer(re.escape(path) + r":(\d+):\d+: (?:fatal )?error", done.stderr)
            lines = {int(m[1]) for m in found}
            keep = [m for m in left if not any(m["line"] <= n <= m["last_line"] for n in lines)]
            left = keep if len(keep) < len(left) else []
        raise RuntimeError(f"{path} does not compile without mutants:\n{done.stderr[:2000]}")

    def test_programs(self, folders):
        """The programs of these folders of tests, built."""
        all_targets = self.tool("targets", "all")
        found = [m[1] for m in re.finditer(r"^(tests/\S+): CXX_EXECUTABLE_LINKER", all_targets, re.M)]
        found = [t for t in found if t.startswith(tuple(folders)) and "fuzz_" not in t]
        self.ninja(*found)
        return found

    def links(self, targets):
        """Of each program (path in the build folder) the command that links it."""
        def one(target):
            return target, self.tool("commands", "-s", target).strip().splitlines()[-1]
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            return dict(pool.map(one, targets))

    def link(self, targets, objects):
        """Links the programs that hold one of the objects (from object path in the build folder to the new one)."""
        guard = self.work / "guard.cc"
        guard.write_text(GUARD.replace("SIZE", "1 << 20"))
        subprocess.run(["g++", "-O1", "-c", str(guard), "-o", str(self.work / "guard.o")], check=True)
        archives = {}
        for old, new in objects.items():
            archives.setdefault(re.sub(r"CMakeFiles/(\w+)\.dir/.*", r"lib\1.a", old), []).append((old, new))
        replaced = {old: str(new) for old, new in objects.items()}
        for archive, members in archives.items():
            if not (self.folder / archive).exists():
                continue  # Its objects are linked one by one.
            copy = self.work / "libraries" / archive
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.folder / archive, copy)
            for _, new in members:
                subprocess.run(["ar", "r", str(copy), str(new)], check=True, capture_output=True)
            subprocess.run(["ranlib", str(copy)], check=True)
            replaced[archive] = str(copy)

        def one(item):
            target, command = item
            words = shlex.split(command)
            words = [os.path.normpath(w) if w.endswith((".o", ".a")) else w for w in words]
            if not any(w in replaced for w in words):
                return
            copy = self.work / "programs" / target
            copy.parent.mkdir(parents=True, exist_ok=True)
            at = words.index("-o") + 1
            words[at] = str(copy)
            words = [replaced.get(w, w) for w in words]
            words.insert(at + 1, str(self.work / "guard.o"))
            command = " ".join(w if w in ("&&", ":") else shlex.quote(w) for w in words)
            done = subprocess.run(command, shell=True, cwd=self.folder, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise RuntimeError(f"{target} does not link: {done.stderr[-2000:]}")
            self.programs[str(self.folder / target)] = str(copy)

        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            list(pool.map(one, self.links(targets).items()))
