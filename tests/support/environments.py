"""Interpreters of Python with others' libraries, for tests that read what we write with what its users have."""
import fcntl
import os
import subprocess


def _has(python, modules):
    try:
        return subprocess.run([python, "-c", f"import {modules}"], capture_output=True, check=False,
                              timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def interpreter(variable, folder, modules, packages, system=True):
    """The interpreter that the environment's `variable` names, or that of the virtual environment `folder`, which is
    made (on Debian's packages, when `system`) from PyPI's `packages` where PyPI can be reached. Returns its path, and
    whether it has the `modules`."""
    if variable in os.environ:
        return os.environ[variable], _has(os.environ[variable], modules)
    python = os.path.join(folder, "bin", "python")
    if _has(python, modules):
        return python, True
    with open(folder + ".lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _has(python, modules):
            return python, True
        options = ["--clear", *(["--system-site-packages"] if system else [])]
        try:
            subprocess.run(["/usr/bin/python3", "-m", "venv", *options, folder], check=False, timeout=60)
            subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages],
                           check=False, timeout=180)
        except (OSError, subprocess.TimeoutExpired):
            pass  # What is there now is looked at.
        return python, _has(python, modules)
