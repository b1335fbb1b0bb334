"""scripts/device-check: what it says of parts that pass, fail, are skipped, have no test, hang or find no time, by a
program in the place of the check; and its parts are the tests of the real one.
Usage: check_script_test.py SOURCE PROGRAM
"""
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

SOURCE, PROGRAM = pathlib.Path(sys.argv[1]), sys.argv[2]
SCRIPT = SOURCE / "scripts" / "device-check"
STUB = """#!/bin/sh
case "$1" in
  *DevicesPromise*) echo 'says: all kept'; echo '[  PASSED  ] 2 tests.' ;;
  *ACopy*) printf 'a.cc:7: Skipped\\nno slab here\\n\\n[  PASSED  ] 1 test.\\n' ;;
  *Updates*) echo 'a.cc:9: Failure'; exit 1 ;;
  *SumsHave*) echo 'running'; sleep 600 & echo $! > "$HEDDLE_CHECK_OUT.child"; wait ;;
  *Peers*|*Attention*) printf 'a.cc:8: Skipped\\nthe device has none\\n\\n[  PASSED  ] 0 tests.\\n' ;;
  *AProfile*) echo '[  PASSED  ] 0 tests.' ;;
  *Operators*) echo 'cannot: the card is gone'; echo 'a.cc:3: Failure'; exit 1 ;;
  *Unlike*) kill -SEGV $$ ;;
esac
"""


def load():
    """The script as a module."""
    loader = importlib.machinery.SourceFileLoader("device_check", str(SCRIPT))
    spec = importlib.util.spec_from_loader("device_check", loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def check(folder, *arguments):
    """What the script prints with the stub, as (exit code, lines, its errors)."""
    done = subprocess.run([sys.executable, "-B", SCRIPT, "--build", folder, *arguments], capture_output=True, text=True,
                          timeout=120, check=False, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout.splitlines(), done.stderr


def line_of(lines, part):
    """The line with the part's verdict."""
    found = [line for line in lines if line.startswith(f"device-check: {part} ")]
    assert found, (part, lines)
    return found[0]


def verdicts(folder):
    """Each part's verdict by its program, and how the script ends."""
    for part, code, says in (("promises", 0, " passed  "), ("copies", 0, " passed: but not all of it: no slab here  "),
                             ("updates", 1, " FAILED: exit code 1  "), ("peers", 0, " skipped: the device has none  "),
                             ("profile", 1, " FAILED: no test ran  "), ("speed", 1, " FAILED: no test ran  "),
                             ("operators", 1, " FAILED: the card is gone  "),
                             ("plans", 1, " FAILED: ended by SIGSEGV  ")):
        done = check(folder, "--device", "cpu", part)
        assert done[0] == code and says in line_of(done[1], part), done
    done = check(folder, "--device", "cpu", "promises")
    assert done[1][1] == "device-check: promises   all kept", done
    assert done[1][2].startswith("device-check: cpu: 1 of 1 parts passed; figures in "), done
    done = check(folder, "--device", "cpu", "peers", "updates")
    assert "0 of 2 parts passed; skipped: peers; failed: updates; figures in" in done[1][-1], done
    assert "a.cc:9: Failure" in done[1], done
    done = check(folder, "--device", "cpu", "operators")
    assert len(done[1]) == 2, done  # Its one line says it.


def attention_of_a_card(folder):
    """A card without cuDNN's attention fails, unless that is meant so."""
    done = check(folder, "--device", "cuda:0", "attention")
    assert done[0] == 1 and " FAILED: the device has none; speeds " in line_of(done[1], "attention"), done
    done = check(folder, "--device", "cuda:0", "--no-cudnn", "attention")
    assert done[0] == 0 and " skipped: the device has none  " in line_of(done[1], "attention"), done
    done = check(folder, "--device", "cuda:0", "peers")
    assert done[0] == 0 and " skipped: " in line_of(done[1], "peers"), done


def ends(process):
    """Whether a process that was killed is gone soon; a zombie is gone."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            stat = pathlib.Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
        except FileNotFoundError:
            return True
        if stat.rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.01)
    return False


def limits(folder):
    """A part that hangs is ended with all that it started, and one without time is not run."""
    out = folder / "figures.jsonl"
    done = check(folder, "--device", "cpu", "--out", out, "--limit", "1", "sums", "promises")
    assert done[0] == 1 and " FAILED: not done after 1 s  " in line_of(done[1], "sums") and "running" in done[1], done
    assert " passed  " in line_of(done[1], "promises"), done
    child = out.with_name(out.name + ".child")
    assert ends(int(child.read_text(encoding="utf-8"))), "what a part started is still there"
    done = check(folder, "--device", "cpu", "--out", out, "--total", "2", "sums", "promises", "copies")
    assert done[0] == 1 and "all that was left of --total" in line_of(done[1], "sums"), done
    assert all(" not run: no time left  " in line_of(done[1], part) for part in ("promises", "copies")), done
    assert "0 of 3 parts passed; failed: sums; not run: promises, copies;" in done[1][-1], done
    told = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert [line["verdict"] for line in told] == ["FAILED", "passed", "FAILED", "not run", "not run"], told


def wrong_usage(folder):
    """One line each, and exit code 2."""
    for arguments in (["nothing"], ["--device", "gpu"], ["--limit", "0"], ["--total", "0"],
                      ["--out", str(folder / "none" / "x")]):
        done = check(folder, *arguments)
        assert done[0] == 2 and not done[1] and "error: " in done[2].splitlines()[-1], done
    done = check(folder / "cuda", "--device", "cpu")
    assert done[0] == 2 and done[2].count("\n") == 1 and "scripts/install-dependencies" in done[2], done
    assert "cmake --preset cuda -DHEDDLE_TESTS=ON" in done[2], done
    assert "--target test_engine_runtime_device_check" in done[2], done


def parts_are_tests(script):
    """Every part has tests, and every test of the check is in one part."""
    def tests(pattern):
        listed = subprocess.run([PROGRAM, "--gtest_list_tests", f"--gtest_filter={pattern}"], capture_output=True,
                                text=True, timeout=120, check=True).stdout.splitlines()
        found, suite = set(), ""
        for line in listed:
            name = line.split("#")[0].strip()
            if not line.startswith(" "):
                suite = name
            elif not name.startswith("DISABLED_"):
                found.add(suite + name)
        return found
    each = {part: tests(pattern) for part, pattern in script.PARTS.items()}
    assert all(each.values()), each
    assert sorted(name for found in each.values() for name in found) == sorted(tests("*")), each
    described = [line.split()[0] for line in script.__doc__.splitlines() if line[:2] == "  " and line[2] != " "]
    assert described == list(script.PARTS), described


def main():
    sys.dont_write_bytecode = True
    script = load()
    parts_are_tests(script)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        stub = folder / script.PROGRAM
        stub.parent.mkdir(parents=True)
        stub.write_text(STUB, encoding="utf-8")
        os.chmod(stub, 0o755)
        verdicts(folder)
        attention_of_a_card(folder)
        limits(folder)
        wrong_usage(folder)


main()
