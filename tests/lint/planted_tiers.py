#!/usr/bin/env python3
"""Each breach of the tests' tiers that is planted in a small project is red, and an entry that passes at its second try
is FLAKY.

Usage: planted_tiers.py SOURCE_FOLDER
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(sys.argv[1])
PROJECT = """cmake_minimum_required(VERSION 3.25)
project(planted LANGUAGES NONE)
list(APPEND CMAKE_MODULE_PATH "{source}/scripts/cmake")
include(HeddleTiers)
enable_testing()
{entries}
heddle_finish_entries()
"""
SOUND = "heddle_entry(unit.sound TIER quick LABEL unit COMMAND true)"
FAILING = "heddle_entry({name} TIER quick LABEL {label} COMMAND /bin/false)"
HANGING = "heddle_entry({name} TIER quick LABEL {label} TIMEOUT 1 COMMAND sleep 100)"
# It fails at its first try and at every second one after that.
UNSTEADY = """file(WRITE "${{CMAKE_SOURCE_DIR}}/{name}.sh" "echo HEDDLE_TEST_SEED=$HEDDLE_TEST_DEFAULT_SEED
test -e {name}.seen && rm {name}.seen && exit 0
touch {name}.seen && exit 1")
heddle_entry({name} TIER quick LABEL {label} COMMAND sh "${{CMAKE_SOURCE_DIR}}/{name}.sh")"""


def expect(condition, message):
    if not condition:
        sys.exit(f"FAILED: {message}")


def run(*command, **environment):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HEDDLE_")}
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=100, check=False,
                          stdin=subprocess.DEVNULL, env={**clean, **environment})
    return done.returncode, done.stdout + done.stderr


def configure(folder, name, *entries):
    project = folder / name
    project.mkdir()
    (project / "CMakeLists.txt").write_text(PROJECT.format(source=SOURCE, entries="\n".join(entries)))
    code, said = run("cmake", "-S", project, "-B", project / "build")
    return project / "build", code, re.sub(r"\s+", " ", said)


def check_entries(folder):
    """What is refused when the build is configured."""
    _, code, said = configure(folder, "sound", SOUND)
    expect(code == 0, said)
    for name, entry, message in (
            ("raw", "add_test(NAME unit.raw COMMAND true)", "the test entry unit.raw has no tier"),
            ("none", "heddle_entry(unit.none LABEL unit COMMAND true)", "unit.none: the tier is ''"),
            ("other", "heddle_entry(unit.other TIER fast LABEL unit COMMAND true)", "unit.other: the tier is 'fast'")):
        _, code, said = configure(folder, name, SOUND, entry)
        expect(code != 0 and message in said, f"{name}: exit {code}: {said}")


def verdict(folder, name, *entries):
    """Exit status and output of scripts/run_tests.py on a sound entry and these: (text, label, name)."""
    build, code, said = configure(folder, name, SOUND, *(text.format(label=label, name=entry)
                                                         for text, label, entry in entries))
    expect(code == 0, said)
    return run(SOURCE / "scripts/run_tests.py", build, "--parallel", 3, "--", "-L", r"^tier\.quick$",
               HEDDLE_TEST_TIER="quick")


def check_verdicts(folder):
    """A planted failure, a hang, and failures of every second run."""
    code, said = verdict(folder, "passes")
    expect(code == 0 and re.search(r"1 entries in \d+ s \(the tier quick is meant to take 60 s\)", said),
           f"exit {code}: {said}")
    code, said = verdict(folder, "fails", (FAILING, "integration", "integration.fails"))
    expect(code == 1 and "test: FAILED: integration.fails" in said and "FLAKY" not in said, f"exit {code}: {said}")
    expect("integration.fails once more, alone" in said, f"no second try: {said}")
    code, said = verdict(folder, "hangs", (HANGING, "integration", "integration.hangs"))
    expect(code == 1 and "test: FAILED: integration.hangs" in said and "***Timeout" in said, f"exit {code}: {said}")
    code, said = verdict(folder, "unsteady", (UNSTEADY, "integration", "integration.unsteady"),
                         (UNSTEADY, "conformance", "conformance.unsteady"))
    expect(code == 0, f"exit {code}: {said}")
    for name in ("integration.unsteady", "conformance.unsteady"):
        line = rf"(?m)^FLAKY {name}: failed \(load [\d.]+.*; HEDDLE_TEST_SEED=\d+\), passed alone"
        expect(re.search(line, said), said)
    code, said = verdict(folder, "pure", (UNSTEADY, "unit", "unit.unsteady"))
    expect(code == 1 and "FLAKY" not in said and "once more" not in said,
           f"a second try of what is pure: exit {code}: {said}")
    three = [(UNSTEADY, "integration", f"integration.unsteady_{number}") for number in range(3)]
    code, said = verdict(folder, "three", *three)
    expect(code == 1 and said.count("test: FAILED: integration.unsteady_") == 3, f"three at once: exit {code}: {said}")


def check_sizes():
    """A test that takes its sizes from the tier and is not registered so."""
    program = (sys.executable, "-c", f"import sys; sys.path.insert(0, '{SOURCE}/tests/support')\n"
               "import tiers; print(tiers.scaled(1, 2, 3))")
    for environment, answer in (({}, "3"), ({"HEDDLE_TEST_TIER": "quick"}, "1"), ({"HEDDLE_TEST_TIER": "check"}, "2"),
                                ({"HEDDLE_TEST_SCALED": "1"}, "3")):
        code, said = run(*program, **environment)
        expect(code == 0 and said.strip() == answer, f"{environment}: exit {code}: {said}")
    code, said = run(*program, HEDDLE_TEST_SCALED="0")
    expect(code != 0 and "SCALED" in said, f"exit {code}: {said}")
    code, said = run(*program, HEDDLE_TEST_TIER="fast")
    expect(code != 0 and "HEDDLE_TEST_TIER=fast" in said, f"exit {code}: {said}")


def check_nightly():
    """What scripts/nightly does not take."""
    for arguments, message in ((["no-such-stage"], "unknown stages: no-such-stage"),
                               (["--seed", "0", "tidy"], "--seed: expected")):
        code, said = run(SOURCE / "scripts/nightly", *arguments)
        expect(code == 2 and message in said, f"{arguments}: exit {code}: {said}")


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        check_entries(folder)
        check_verdicts(folder)
    check_sizes()
    check_nightly()
    print("every planted breach was found")


main()
