#!/usr/bin/env python3
"""Includes go downwards only (docs/internals/architecture.md).

Three rules for every source file of the product's folders:

1. A folder includes folders of its own layer and of the layers that LAYERS allows, nothing else; the
   dependencies that CMake declares obey the same table.
2. A folder declares what it includes in CMake (layers.txt, written when the build is configured), directly or
   through a dependency.
3. Libraries of other projects are included only where EXTERNAL allows it: libtorch in engine/runtime only, gRPC in
   elastic/grpc and for etcd, and so on. Headers must not include those in HEAVY, because every file would parse them.

Usage: layers.py [--source FOLDER] --layers BUILD/layers.txt
Prints "path:line: error: …" and exits with 1 when a rule is broken, with 2 when it cannot check.
"""
import pathlib
import re
import sys

import tree

# Layer: the layers below that it may include, directly or through them.
LAYERS = {
    "base": [],
    "base/system": ["base"],
    "base/tensor": ["base"],
    "base/yaml": ["base/system"],
    "metrics": ["base"],
    "metrics/dashboard": ["base"],
    "metrics/exposition": ["metrics"],
    "comm/cost": ["base"],
    "comm": ["comm/cost", "metrics"],
    "comm/links": ["comm"],
    "comm/transport": ["comm"],
    "comm/transport/shm": ["comm/transport"],
    "comm/transport/tcp": ["comm/transport", "comm/links"],
    "comm/transport/verbs": ["comm/transport", "comm/links"],
    "comm/stream": ["comm/transport"],
    "comm/message": ["comm/stream"],
    "comm/group": ["comm/message"],
    "comm/collective": ["comm/group"],
    "comm/endpoint": ["comm/collective", "comm/links"],
    "comm/mpi": ["comm/endpoint"],
    "engine/graph": ["base"],
    "engine/graph/models": ["engine/graph"],
    "engine/graph/ops": ["engine/graph"],
    "engine/graph/sharding": ["engine/graph"],
    "engine/program": ["engine/graph/models", "engine/graph/ops", "engine/graph/sharding"],
    "engine/program/lowering": ["engine/program"],
    "engine/program/verify": ["engine/program"],
    "engine/data": ["base"],
    "engine/machine": ["base"],
    "checkpoint/codec": ["base"],
    "checkpoint/format": ["checkpoint/codec", "engine/program"],
    "checkpoint/files": ["checkpoint/format"],
    "checkpoint/storage": ["checkpoint/files"],
    "checkpoint/storage/local": ["checkpoint/storage"],
    "checkpoint/storage/s3": ["checkpoint/storage"],
    "checkpoint/read": ["checkpoint/storage"],
    "checkpoint/store": ["checkpoint/read", "metrics"],
    "checkpoint/save": ["checkpoint/read", "metrics"],
    "checkpoint/formats": ["checkpoint/store", "engine/graph/models"],
    "checkpoint/formats/pytorch": ["checkpoint/formats"],
    "checkpoint/convert": ["checkpoint/formats"],
    "planner/linear": ["base"],
    "planner/predictor": ["engine/program/lowering", "comm/cost"],
    "planner/search": ["planner/linear", "planner/predictor"],
    "planner/teams": ["planner/search"],
    "engine/job": ["engine/data", "engine/machine", "planner/search", "checkpoint/store"],
    "engine/runtime/device": ["engine/graph", "engine/machine", "engine/runtime/kernels/simd"],
    "engine/runtime/exchange": ["engine/program", "engine/graph/sharding", "comm", "engine/runtime/device"],
    "engine/runtime/device/cuda": ["engine/runtime/device"],
    "engine/runtime/kernels": ["engine/runtime"],
    "engine/runtime/kernels/cuda": ["engine/runtime/kernels", "engine/runtime/device/cuda"],
    "engine/runtime/kernels/simd": ["base"],
    "engine/runtime": ["engine/program/lowering", "engine/data", "comm", "engine/runtime/device",
                       "engine/runtime/exchange", "engine/runtime/kernels/simd"],
    "engine/runtime/compare": ["engine/runtime", "engine/runtime/device"],
    "engine/evaluate": ["engine/runtime", "engine/runtime/compare", "engine/job", "checkpoint/convert"],
    "elastic/protocol": ["base"],
    "elastic/control": ["elastic/protocol"],
    "elastic/control/membership": ["elastic/control"],
    "elastic/control/lineage": ["elastic/control/membership"],
    "elastic/control/links": ["elastic/control/membership"],
    "elastic/control/steps": ["elastic/control"],
    "elastic/control/outcome": ["elastic/control/steps"],
    "elastic/control/saves": ["elastic/control/membership"],
    "elastic/control/source": ["elastic/control/saves", "elastic/control/steps"],
    "elastic/control/drift": ["elastic/control/links", "elastic/control/membership"],
    "elastic/control/decisions": ["elastic/control/source"],
    "elastic/control/suspension": ["elastic/control/saves"],
    "elastic/control/transition": ["elastic/control/drift", "elastic/control/decisions", "elastic/control/lineage",
                                   "elastic/control/links", "elastic/control/outcome", "elastic/control/source"],
    "elastic/control/coordinator": ["elastic/control/suspension", "elastic/control/transition"],
    "elastic/member": ["elastic/protocol"],
    "elastic/store": ["elastic/control"],
    "elastic/store/etcd": ["elastic/store"],
    "elastic/launcher": ["base"],
    "elastic/identity": ["base"],
    "elastic/grpc/connection": ["elastic/control", "elastic/identity"],
    "elastic/grpc": ["elastic/control/coordinator", "elastic/store", "elastic/grpc/connection"],
    "elastic/report": ["elastic/control"],
    "elastic/planning": ["elastic/control", "engine/job", "engine/program/verify", "planner/teams",
                         "checkpoint/format"],
    "elastic/service/folders": ["elastic/store", "engine/job", "checkpoint/storage"],
    "elastic/service": ["elastic/service/folders", "elastic/planning", "elastic/grpc", "elastic/launcher",
                        "elastic/report", "elastic/store/etcd", "engine/job", "checkpoint/convert", "checkpoint/save",
                        "metrics/exposition", "metrics/dashboard"],
    "elastic/service/inspect": ["elastic/service"],
    "elastic/worker/figures": ["metrics"],
    "elastic/worker/measure": ["elastic/planning", "engine/runtime", "comm/endpoint"],
    "elastic/worker/replicas": ["elastic/protocol", "comm", "checkpoint/save"],
    "elastic/worker/trainer": ["elastic/member", "elastic/planning", "elastic/worker/figures",
                               "elastic/worker/measure", "elastic/worker/replicas", "engine/runtime"],
    "elastic/worker": ["elastic/worker/trainer", "elastic/service", "engine/evaluate", "comm/endpoint"],
    "cli": ["elastic/service/inspect", "comm/endpoint"],
    "cli/checkpoint": ["cli"],
    "cli/coordinator": ["cli"],
    "cli/certs": ["cli/coordinator"],
    "cli/engine": ["cli", "elastic/worker"],
}
# Every layer may include these.
EVERYWHERE = ["base", "base/system", "base/tensor", "base/yaml"]

# Headers of other projects: where they may be included. A header that matches no line is an error.
EXTERNAL = [
    (r"fmt/", ["*"]),
    (r"(c10|ATen)/cuda/|cuda_(runtime|runtime_api|bf16)\.h$",
     ["engine/runtime/device/cuda", "engine/runtime/kernels/cuda"]),
    (r"cudnn_frontend\.h$", ["engine/runtime/kernels/cuda"]),
    (r"(torch|ATen|c10|caffe2)/", ["engine/runtime"]),
    (r"omp\.h$", ["engine/runtime"]),
    (r"(immintrin|x86intrin)\.h$", ["engine/runtime", "checkpoint", "comm/transport"]),
    (r"(grpc|grpcpp|grpc\+\+)/", ["elastic/grpc", "elastic/store/etcd"]),
    (r"google/protobuf/", ["elastic"]),
    (r"yaml-cpp/", ["base"]),
    (r"spdlog/", ["base"]),
    (r"(xxhash|xxh_x86dispatch)\.h$", ["base"]),
    (r"nlohmann/", ["metrics", "engine/graph", "engine/program", "engine/job", "engine/evaluate", "checkpoint",
                    "planner", "elastic", "cli"]),
    (r"prometheus/", ["metrics/exposition"]),
    (r"httplib\.h$", ["metrics/exposition"]),
    (r"(hdf5|zlib|zstd)\.h$", ["checkpoint"]),
    (r"sqlite3\.h$", ["elastic/store"]),
    (r"openssl/", ["comm", "elastic/identity", "checkpoint/storage/s3"]),
    (r"curl/|pugixml\.hpp$", ["checkpoint/storage/s3"]),
    (r"CLI/", ["cli"]),
    (r"(infiniband|rdma)/", ["comm"]),
    (r"mpi\.h$", ["comm/mpi"]),
]
HEAVY = re.compile(r"torch/|grpc|nlohmann/json\.hpp|spdlog/|yaml-cpp/|CLI/|prometheus/|httplib\.h")

# Every folder may include headers of the operating system and the language.
SYSTEM = re.compile(
    r"^([a-z_0-9]+|(sys|netinet|arpa|net|linux|bits|asm)/[a-z_0-9./]+"
    r"|(cpuid|dirent|dlfcn|fcntl|fnmatch|glob|ifaddrs|link|malloc|mntent|netdb|poll|pthread|pwd|sched|signal|spawn"
    r"|termios|unistd)\.h)$")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
GENERATED = re.compile(r"\.pb\.h$")
SUFFIXES = {".h", ".cc", ".cpp", ".hpp", ".cu", ".cuh", ".inc"}


def closure(start, edges):
    """Everything reachable from `start`, itself included."""
    seen, queue = set(), [start]
    while queue:
        node = queue.pop()
        if node not in seen:
            seen.add(node)
            queue.extend(edges.get(node, ()))
    return seen


def layer_of(folder):
    """The innermost layer that holds `folder`, or None."""
    parts = folder.split("/")
    for count in range(len(parts), 0, -1):
        if "/".join(parts[:count]) in LAYERS:
            return "/".join(parts[:count])
    return None


def allowed_below(layer):
    """The layers that `layer` may include, itself included."""
    below = closure(layer, LAYERS)
    return below if layer in EVERYWHERE else below | set(EVERYWHERE)


def within(folder, places):
    return any(place == "*" or folder == place or folder.startswith(place + "/") for place in places)


class Declared:
    """layers.txt: lines "folder=name:dependency,dependency"; a folder may have several names. "umbrella folder=…": a
    name for several targets, which includes nothing itself."""

    def __init__(self, path):
        self.folder_of, self.dependencies, self.names_in, self.umbrellas = {}, {}, {}, set()
        for line in path.read_text(encoding="utf-8").splitlines():
            umbrella = line.startswith("umbrella ")
            folder, _, rest = line.removeprefix("umbrella ").partition("=")
            name, _, dependencies = rest.partition(":")
            if not name:
                continue
            self.folder_of[name] = folder
            self.dependencies[name] = [d for d in dependencies.split(",") if d]
            if umbrella:
                self.umbrellas.add(name)
            else:
                self.names_in.setdefault(folder, []).append(name)

    def innermost(self, folder):
        """The innermost folder with a target of its own that holds `folder`, or None."""
        parts = folder.split("/")
        for count in range(len(parts), 0, -1):
            if "/".join(parts[:count]) in self.names_in:
                return "/".join(parts[:count])
        return None

    def reachable(self, folder):
        """Folders of the targets that those of `folder` depend on."""
        names = set()
        for name in self.names_in[folder]:
            names |= closure(name, self.dependencies)
        return {self.folder_of[name] for name in names if name in self.folder_of}


def check_declared(declared, layers_path):
    for name, dependencies in sorted(declared.dependencies.items()):
        layer = layer_of(declared.folder_of[name])
        if layer is None or name in declared.umbrellas:
            continue
        for dependency in dependencies:
            below = layer_of(declared.folder_of.get(dependency, ""))
            if below is not None and below not in allowed_below(layer):
                yield (f"{layers_path}:1: error: {name} declares {dependency}, "
                       f"but {layer} may not include {below}")


def check_external(folder, header, is_header_file):
    if SYSTEM.match(header):
        return
    for pattern, places in EXTERNAL:
        if re.match(pattern, header):
            if not within(folder, places):
                yield f"<{header}> may be included in {', '.join(places)} only"
            elif is_header_file and HEAVY.match(header):
                yield f"<{header}> is too heavy for a header: include it in a .cc file"
            return
    yield f"<{header}> is a library that scripts/checks/layers.py does not know"


def check_own(root, folder, header, declared):
    target = str(pathlib.PurePosixPath(header).parent)
    layer, below = layer_of(folder), layer_of(target)
    if below is None:
        yield f'"{header}": paths start at the root of the repository'
        return
    if not GENERATED.search(header) and not (root / header).is_file():
        yield f'"{header}" does not exist'
        return
    if below not in allowed_below(layer):
        yield f"{layer} may not include {below}"
        return
    here, there = declared.innermost(folder), declared.innermost(target)
    # A folder that this build leaves out declares nothing, so only the table is checked.
    if here and there and here != there and there not in declared.reachable(here):
        yield f"{here} includes {there} without depending on it in CMake"


def sources(root):
    tops = sorted({layer.split("/")[0] for layer in LAYERS})
    for top in tops:
        for path in sorted((root / top).rglob("*")):
            if path.suffix in SUFFIXES and path.is_file():
                yield path


def check_file(root, path, declared):
    relative = path.relative_to(root).as_posix()
    folder = str(pathlib.PurePosixPath(relative).parent)
    if layer_of(folder) is None:
        yield f"{relative}:1: error: {folder} belongs to no layer"
        return
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        found = INCLUDE.match(line)
        if not found:
            continue
        kind, header = found.groups()
        problems = (check_external(folder, header, path.suffix in {".h", ".hpp"}) if kind == "<"
                    else check_own(root, folder, header, declared))
        for problem in problems:
            yield f"{relative}:{number}: error: {problem}"


def main():
    parser = tree.arguments(__doc__)
    parser.add_argument("--layers", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    if not arguments.layers.is_file():
        print(f"{arguments.layers}: error: not there; configure the build first", file=sys.stderr)
        return 2
    declared = Declared(arguments.layers)
    if "base" not in declared.names_in:
        print(f"{arguments.layers}: error: no line about base", file=sys.stderr)
        return 2
    problems = list(check_declared(declared, arguments.layers))
    count = 0
    for path in sources(arguments.source):
        problems.extend(check_file(arguments.source, path, declared))
        count += 1
    return tree.report("layers", count, problems)


if __name__ == "__main__":
    sys.exit(main())
