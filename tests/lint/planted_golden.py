#!/usr/bin/env python3
"""scripts/golden finds a value that differs, one that is missing and a file of another machine, and masks times alone.

Usage: planted_golden.py SOURCE_FOLDER
"""
import copy
import importlib.machinery
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile

RECORDED = {"format": 1, "cpu": "one",
            "runs": {"smoke": {"losses": {"1": "5.5", "2": "5.25"}, "programs": {"0": "00ff"}}}}
# A version 2 object header with times (flags 0x20): signature, version, flags, times, size of 3, content, checksum.
HEADER = b"OHDR\x02\x20" + bytes(range(1, 17)) + b"\x03" + b"abc" + b"\x01\x02\x03\x04"


def main():
    script, failures = pathlib.Path(sys.argv[1]) / "scripts" / "golden", []

    def expect(condition, message):
        if not condition:
            failures.append(message)

    with tempfile.TemporaryDirectory() as folder:
        def compare(changed):
            paths = [pathlib.Path(folder) / name for name in ("a.json", "b.json")]
            for path, data in zip(paths, (RECORDED, changed)):
                path.write_text(json.dumps(data), encoding="utf-8")
            done = subprocess.run([sys.executable, str(script), "compare", *map(str, paths)], capture_output=True,
                                  text=True, timeout=30, check=False)
            return done.returncode, done.stdout + done.stderr
        expect(compare(RECORDED)[0] == 0, "equal files differ")
        planted = copy.deepcopy(RECORDED)
        planted["runs"]["smoke"]["losses"]["2"] = "5.250000001"
        code, text = compare(planted)
        expect(code == 1 and "smoke/losses/2: 5.25 | 5.250000001" in text, f"a loss: {code} {text}")
        planted = copy.deepcopy(RECORDED)
        del planted["runs"]["smoke"]["programs"]["0"]
        code, text = compare(planted)
        expect(code == 1 and "smoke/programs/0: 00ff | (missing)" in text, f"a missing hash: {code} {text}")
        planted = copy.deepcopy(RECORDED)
        planted["cpu"] = "other"
        code, text = compare(planted)
        expect(code == 2 and "unlike cpu" in text, f"another machine: {code} {text}")
    loader = importlib.machinery.SourceFileLoader("golden", str(script))
    sys.dont_write_bytecode = True
    golden = importlib.util.module_from_spec(importlib.util.spec_from_loader("golden", loader))
    loader.exec_module(golden)
    data = b"before" + HEADER + b"after"
    masked = golden.masked_hdf5(data)
    expect(masked == b"beforeOHDR\x02\x20" + bytes(16) + b"\x03abc" + bytes(4) + b"after", f"masked: {masked}")
    manifest = {"created": 1.5, "checksum": "a", "files": [{"name": "a.h5", "blocks_xxh3_128": "b", "bytes": 3}],
                "extra": "{}", "plan": "", "tensors": [{"digest": "c"}]}
    before = golden.masked_manifest(json.dumps(manifest))
    manifest["created"] = 2.5
    expect(golden.masked_manifest(json.dumps(manifest)) == before, "the time of a manifest is not masked")
    manifest["tensors"][0]["digest"] = "d"
    expect(golden.masked_manifest(json.dumps(manifest)) != before, "a digest is masked")
    for failure in failures:
        print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
