"""What scripts/container/Dockerfile names exists: scripts and their options, presets, targets, and the program that it
runs, which is no other user's than its own. Docker itself is not needed. Usage: container.py SOURCE"""
import json
import pathlib
import re
import subprocess
import sys

SOURCE = pathlib.Path(sys.argv[1])


def main():
    text = (SOURCE / "scripts" / "container" / "Dockerfile").read_text(encoding="utf-8")
    code = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    assert re.search(r"^FROM debian:12", code), "the packages of install-dependencies are those of Debian 12"
    scripts = set(re.findall(r"\bscripts/[\w-]+", code))
    assert scripts == {"scripts/install-dependencies", "scripts/install-cuda"}, scripts
    for script in scripts:
        assert (SOURCE / script).stat().st_mode & 0o100, f"{script} cannot be run"
    for option in re.findall(r"packages=(--[\w-]+)", code):
        listed = subprocess.run([SOURCE / "scripts" / "install-dependencies", option, "--list"], capture_output=True,
                                text=True, timeout=60, check=False)
        packages = listed.stdout.split()
        assert listed.returncode == 0 and {"cmake", "ninja-build", "build-essential"} <= set(packages), (option, listed)
        assert option != "--cuda" or "python3-venv" in packages, "scripts/install-cuda makes a venv"
    with open(SOURCE / "CMakePresets.json", encoding="utf-8") as file:
        presets = {preset["name"] for preset in json.load(file)["buildPresets"]}
    named = set(re.findall(r"preset=(\w+)", code))
    assert named == {"cuda", "release"} and named <= presets, named
    [target] = re.findall(r"--target (\S+)", code)
    assert f"add_executable({target} " in (SOURCE / "cli" / "CMakeLists.txt").read_text(encoding="utf-8"), target
    for line in (f'ENTRYPOINT ["{target}"]', "ENV PATH=/opt/heddle/bin:$PATH", "WORKDIR /opt/heddle"):
        assert line in code.splitlines(), line
    made = re.findall(r"useradd --create-home (\w+)", code)
    used = re.findall(r"^USER (\w+)$", code, re.MULTILINE)
    assert made == used and used != ["root"] and len(used) == 1, (made, used)
    ignored = (SOURCE / "scripts" / "container" / "Dockerfile.dockerignore").read_text(encoding="utf-8").split()
    assert {"build", "runs", ".git"} <= set(ignored), "builds of the host do not fit the container"


main()
