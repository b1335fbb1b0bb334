"""Where benchmarks/setup put the peers."""
import os


def folder():
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.environ.get("HEDDLE_PEERS", os.path.join(cache, "heddle-peers"))


def python():
    """The interpreter with PyPI's PyTorch, or another one that has it."""
    return os.environ.get("HEDDLE_PEER_PYTHON") or os.path.join(folder(), "torch/bin/python")
