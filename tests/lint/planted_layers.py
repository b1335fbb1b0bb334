#!/usr/bin/env python3
"""Each violation of the layers that is planted in a copy of the sources is found, at its line.

Usage: planted_layers.py SOURCE_FOLDER LAYERS_FILE
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile

TOPS = ("base", "metrics", "comm", "engine", "checkpoint", "planner", "elastic", "cli", "scripts")

# (folder of the planted file, line, part of the message)
PLANTED = [
    ("base", '#include "metrics/registry.h"', "base may not include metrics"),
    ("comm", '#include "engine/graph/graph.h"', "comm may not include engine/graph"),
    ("comm/cost", '#include "comm/communicator.h"', "comm/cost may not include comm"),
    ("engine/graph", '#include "engine/program/plan.h"', "engine/graph may not include engine/program"),
    ("engine/graph/ops", '#include "comm/communicator.h"', "engine/graph/ops may not include comm"),
    ("comm/message", '#include "comm/group/group.h"', "comm/message may not include comm/group"),
    ("comm/transport/shm", '#include "comm/transport/tcp/tcp_setup.h"',
     "comm/transport/shm may not include comm/transport/tcp"),
    ("checkpoint/read", '#include "checkpoint/save/writer.h"', "checkpoint/read may not include checkpoint/save"),
    ("elastic/member", '#include "elastic/control/coordinator/coordinator.h"',
     "elastic/member may not include elastic/control/coordinator"),
    ("planner/search", '#include "engine/data/dataset.h"', "planner/search may not include engine/data"),
    ("elastic/control", '#include "engine/runtime/vote.h"', "elastic/control may not include engine/runtime"),
    ("engine/program", "#include <ATen/ATen.h>", "<ATen/ATen.h> may be included in engine/runtime only"),
    ("elastic/worker", "#include <torch/torch.h>", "may be included in engine/runtime only"),
    ("elastic/worker", "#  include <grpcpp/grpcpp.h>", "may be included in elastic/grpc, elastic/store/etcd only"),
    ("engine/job", "#include <yaml-cpp/yaml.h>", "may be included in base only"),
    ("planner/search", "#include <boost/graph/graph.hpp>", "is a library that scripts/checks/layers.py does not know"),
    ("planner/search", '#include "no/such/file.h"', "paths start at the root of the repository"),
    ("planner/search", '#include "base/no_such_file.h"', "does not exist"),
]


def run(copy, layers):
    command = [sys.executable, str(copy / "scripts/checks/layers.py"), "--source", str(copy), "--layers", str(layers)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50)
    return done.returncode, done.stdout


def expect(condition, message, failures):
    if not condition:
        failures.append(message)


def main():
    source, layers = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder)
        for top in TOPS:
            shutil.copytree(source / top, copy / top)
        _, sound = run(copy, layers)
        for number, (where, line, message) in enumerate(PLANTED):
            path = copy / where / f"planted_{number}.cc"
            path.write_text(f"// A comment first.\n{line}\n", encoding="utf-8")
        status, output = run(copy, layers)
        expect(status == 1, f"exit status {status} with planted violations", failures)
        for number, (where, _, message) in enumerate(PLANTED):
            start = f"{where}/planted_{number}.cc:2: error: "
            found = [line for line in output.splitlines() if line.startswith(start)]
            expect(found and message in found[0], f"not found: {start}… {message}; got {found}", failures)
            (copy / where / f"planted_{number}.cc").unlink()

        # A heavy header, a folder that is no layer, and an include that CMake does not know of.
        (copy / "planner/search/planted.h").write_text("#include <nlohmann/json.hpp>\n", encoding="utf-8")
        (copy / "engine/planted.cc").write_text("\n", encoding="utf-8")
        narrow = copy / "layers.txt"
        lines = layers.read_text(encoding="utf-8").splitlines()
        lines = ["engine/program=engine_program_core:base" if line.startswith("engine/program=") else line
                 for line in lines]
        narrow.write_text("\n".join(lines) + "\nbase=sideways:comm\n", encoding="utf-8")
        status, output = run(copy, narrow)
        expect(status == 1, f"exit status {status} with a narrow layers.txt", failures)
        for message in ("planner/search/planted.h:1: error: <nlohmann/json.hpp> is too heavy for a header",
                        "engine/planted.cc:1: error: engine belongs to no layer",
                        "engine/program includes engine/graph without depending on it in CMake",
                        "sideways declares comm, but base may not include comm"):
            expect(message in output, f"not found: {message}", failures)
        (copy / "planner/search/planted.h").unlink()
        (copy / "engine/planted.cc").unlink()
        expect(run(copy, layers)[1] == sound, "the copy is not as before without what was planted", failures)
        expect(run(copy, copy / "none.txt")[0] == 2, "a missing layers.txt passes", failures)
    for failure in failures:
        print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
