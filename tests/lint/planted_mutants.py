#!/usr/bin/python3
"""scripts/mutants finds the faults that it should in a small source, and each planted one does what it says.

Usage: planted_mutants.py SOURCE_FOLDER
"""
import os
import pathlib
import subprocess
import sys
import tempfile

SOURCE = r'''#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#define HEDDLE_CHECK(condition) do { if (!(condition)) { return -9; } } while (false)

constexpr int kNever = 7;
constexpr int Square(int x) { return x * x; }

static int Difference(int a, int b) { return a - b; }

struct Named {
  int number = 0;
  std::string name;
};
static Named& At(std::vector<Named>& all, int row, int column) { return all[row + column]; }
static void Name(std::vector<Named>& all, const Named& other, int a, int b) {
  At(all, a, b) = {.number = a, .name = a == b ? other.name : std::string("none")};
}

static int Work(int a, int b) {  // 1 + 2 is no code.
  HEDDLE_CHECK(a < 100);
  if (a > 5) {
    return -1;
  }
  std::vector<int> all;
  all.reserve(8);
  all.push_back(std::min(a, b));
  int sum = Difference(a, b) + static_cast<int>(all.size());
  sum += a == 1 && b == 2 ? 10 : 20;
  return sum;
}

int main() {
  std::vector<Named> all(4);
  Name(all, Named(), 1, 2);
  std::printf("%d %d\n", Work(1, 2), Work(6, 0));
}
'''
UNCHANGED = "10 -1"
# (kind, before, after): what the program prints with that fault.
EXPECTED = {
    ("comparison", "a > 5", "a >= 5"): "10 -1",
    ("comparison", "a > 5", "a <= 5"): "-1 27",
    ("drop check", "if (a > 5) { return -1; }", ""): "10 27",
    ("drop statement", "all.push_back(std::min(a, b));", ""): "9 -1",
    ("drop statement", "sum += a == 1 && b == 2 ? 10 : 20;", ""): "0 -1",
    ("arithmetic", "a - b", "a + b"): "14 -1",
    ("arithmetic", "sum += a == 1 && b == 2 ? 10 : 20", "sum -= a == 1 && b == 2 ? 10 : 20"): "-10 -1",
    ("swap", "Difference(a, b)", "Difference(b, a)"): "12 -1",
    ("logic", "a == 1 && b == 2", "a == 1 || b == 2"): "10 -1",
    ("negate", "a == 1 && b == 2", "!(a == 1 && b == 2)"): "20 -1",
    ("constant", "10", "11"): "11 -1",
    ("minimum", "std::min(a, b)", "std::max(a, b)"): "10 -1",
}
NEVER = ("reserve", "HEDDLE_CHECK", "100", "x * x", "kNever", "1 + 2")


def main():
    root = pathlib.Path(sys.argv[1])
    sys.path.insert(0, str(root / "scripts"))
    from mutation import planted, sites
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        path = folder / "work.cc"
        path.write_text(SOURCE)
        found = sites.find(str(path), ["-std=c++20"])
        for number, site in enumerate(found, 1):
            site["id"] = number
        planted_text = planted.plant(path.read_bytes(), found)
        assert planted_text.count("\n") == SOURCE.count("\n"), "planting moves lines"
        (folder / "planted.cc").write_text(planted.HEAD % "work.cc" + planted_text)
        (folder / "guard.cc").write_text(planted.GUARD.replace("SIZE", "4096"))
        subprocess.run(["g++", "-std=c++20", "-w", "-o", "work", "planted.cc", "guard.cc"], cwd=folder, check=True)

        def run(**environment):
            done = subprocess.run([folder / "work"], env={**os.environ, **environment}, capture_output=True, text=True,
                                  timeout=10, check=True)
            return done.stdout.strip()

        failures = []
        seen = folder / "seen"
        seen.write_bytes(bytes(4096))
        if run(HEDDLE_MUTANT_COVERAGE=str(seen)) != UNCHANGED:
            failures.append("the program differs without a fault")
        reached = seen.read_bytes()
        by_text = {(s["kind"], s["before"], s["after"]): s["id"] for s in found}
        for key, prints in EXPECTED.items():
            if key not in by_text:
                failures.append(f"not found: {key}")
            elif run(HEDDLE_MUTANT=str(by_text[key])) != prints:
                failures.append(f"{key} prints {run(HEDDLE_MUTANT=str(by_text[key]))}, not {prints}")
            elif not reached[by_text[key]]:
                failures.append(f"{key} is reached, and not recorded")
        failures += [f"planted: {s['before']}" for s in found if any(s["before"].startswith(n) for n in NEVER)]
    for failure in failures:
        print(failure)
    print(f"{len(found)} faults, {len(failures)} problems")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
