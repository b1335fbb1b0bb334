"""Workers that join by tokens and renew their certificates while a job trains, which gives the losses of a run without
either; tokens that were used up, have ended, are unknown or of another lab; and a worker whose certificate is revoked.
"""
import json
import os
import re
import sqlite3
import stat
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import Scratch, check_same, get, heddle, wait_for  # noqa: E402
from harness.text_data import prose  # noqa: E402
from harness.served import WORKERS, Cluster, losses_until, write_job  # noqa: E402

STEPS = 100_000  # None of it ends by itself.
LIFE = 12  # Seconds of a certificate: renewed from six on.


class JoiningCluster(Cluster):
    """Its coordinator makes certificates, and its workers have a token each, or one for all."""

    token_file = None

    def start(self, *command):
        if command[1] == "serve":
            command += ("--authority", os.path.join(self.lab, "authority"), "--certificate-life", f"{LIFE}s")
        return super().start(*command)

    def certs(self, party):
        if party == "worker":
            return ["--certs", self.joined(), "--join-token-file", self.token_file]
        return super().certs(party)

    def joined(self, *parts):
        return os.path.join(self.folder, "joined", *parts)

    def token(self, file, *options):
        """Makes a token, and the file with it."""
        made = heddle("certs", "token", "--role", "worker", *options, "--coordinator", self.listen,
                      *self.certs("operator"))
        assert made.returncode == 0 and re.fullmatch(r"heddle-join\.[0-9a-f]{64}\.[0-9a-f]{64}\n", made.stdout), made
        return write_token(os.path.join(self.folder, file), made.stdout)

    def metrics(self):
        with open(os.path.join(self.store, "job.json"), encoding="utf-8") as file:
            address = json.load(file)["metrics"]
        return get(address)

    def counted(self, name, label):
        found = re.search(rf'^{name}\{{{label}\}} (\S+)$', self.metrics(), re.MULTILINE)
        return float(found.group(1)) if found else 0


def write_token(path, text):
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(text)
    return path


def openssl(*arguments):
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, timeout=60, check=False,
                          stdin=subprocess.DEVNULL)
    assert done.returncode == 0, (arguments, done)
    return done.stdout


def serial(cluster, name):
    return openssl("x509", "-in", cluster.joined(name, "certificate.pem"), "-noout", "-serial")


def check_certificate(cluster, name):
    """OpenSSL's own program takes what a worker got for what it should be."""
    certificate = cluster.joined(name, "certificate.pem")
    root = os.path.join(cluster.lab, "authority", "certificate.pem")
    openssl("verify", "-x509_strict", "-CAfile", root, "-purpose", "sslclient", certificate)
    text = openssl("x509", "-in", certificate, "-noout", "-text")
    assert f"URI:heddle:worker/{name}\n" in text and "CA:FALSE" in text and "DNS:" not in text, text
    assert "TLS Web Client Authentication" in text and "Server Authentication" not in text, text
    assert stat.S_IMODE(os.stat(cluster.joined(name, "key.pem")).st_mode) == 0o600


def refused(cluster, name, token_file, what):
    """One line of why, exit code 2, and no certificate."""
    done = heddle("worker", "--coordinator", cluster.listen, "--name", name, "--certs", cluster.joined(),
                  "--join-token-file", token_file)
    lines = done.stderr.splitlines()
    assert done.returncode == 2 and len(lines) == 1 and re.search(what, lines[0]), done
    assert not os.path.exists(cluster.joined(name))


def check_tokens(cluster, folder, used, brief):
    """Every token of no use is refused, and counted where it was shown to anybody."""
    before = cluster.counted("heddle_control_refused_total", 'reason="token"')
    refused(cluster, "d", used, "has been used")
    refused(cluster, "d", brief, "has ended")
    with open(used, encoding="ascii") as file:
        [_, secret, fingerprint] = file.read().strip().split(".")
    unknown = write_token(os.path.join(folder, "unknown"), f"heddle-join.{'0' * 64}.{fingerprint}\n")
    refused(cluster, "d", unknown, "does not know the join token")
    assert cluster.counted("heddle_control_refused_total", 'reason="token"') == before + 3
    foreign = write_token(os.path.join(folder, "foreign"), f"heddle-join.{secret}.{'0' * 64}\n")
    refused(cluster, "d", foreign, "not of the lab that the join token was made for")
    refused(cluster, "d", write_token(os.path.join(folder, "noise"), "noise\n"), "not a join token")
    os.chmod(unknown, 0o644)
    refused(cluster, "d", unknown, "others may read this")
    assert cluster.counted("heddle_control_refused_total", 'reason="token"') == before + 3
    done = heddle("certs", "token", "--name", "d", "--coordinator", cluster.listen, "--certs",
                  os.path.join(cluster.lab, "viewer"))
    assert done.returncode == 2 and "viewer may not call AddToken" in done.stderr and not done.stdout, done
    done = heddle("certs", "token", "--name", "d", "--role", "operator", "--coordinator", cluster.listen,
                  *cluster.certs("operator"))
    assert done.returncode == 2 and "a token admits workers" in done.stderr and not done.stdout, done


def check_no_secret_is_shown(cluster, token_files):
    """A token is where its holder has put it, and nowhere else; the store has a hash of it."""
    secrets = []
    for path in token_files:
        with open(path, encoding="ascii") as file:
            secrets.append(file.read().split(".")[1])
    with sqlite3.connect(f"file:{cluster.store}/coordinator.sqlite?mode=ro", uri=True) as store:
        [state] = store.execute("SELECT state FROM coordinator").fetchone()
    assert [grant["uses_left"] for grant in json.loads(state)["grants"].values() if grant["names"] == "?"] == [0], state
    with open(cluster.log_path, encoding="utf-8", errors="replace") as file:
        shown = state + file.read()
    for process in [cluster.coordinator, *cluster.workers.values()]:
        with open(f"/proc/{process.pid}/cmdline", encoding="utf-8", errors="replace") as file:
            shown += file.read()
    assert not any(secret in shown for secret in secrets)
    assert "PRIVATE KEY" not in shown


def restart(cluster):
    cluster.coordinator.kill()
    cluster.coordinator.wait(60)
    cluster.serve()


def check_revoked(cluster):
    """A worker of which nobody wants to hear any more: its stream ends, and it is not let in again."""
    done = heddle("certs", "revoke", "c", "--coordinator", cluster.listen, *cluster.certs("operator"))
    assert done.returncode == 0 and done.stdout == done.stderr == "", done
    wait_for("the loss of c", lambda: [event["worker"] for event in cluster.run.events("worker_lost")] == ["c"])
    wait_for("a refused call", lambda: cluster.counted("heddle_control_refused_total", 'reason="revoked"') > 0)
    cluster.kill("c")


def main():
    with Scratch() as folder:
        lab = os.path.join(folder, "lab")
        made = heddle("certs", "init", lab)
        assert made.returncode == 0, made
        job = write_job(folder, prose(folder), STEPS)
        with JoiningCluster(folder, "served", lab=lab) as cluster:
            cluster.serve()
            brief = cluster.token("brief", "--name", "d", "--life", "1s")
            ended = time.monotonic() + 2
            cluster.submit(job)
            cluster.token_file = used = cluster.token("used", "--name", "?", "--uses", "3", "--life", "10m")
            for name in WORKERS:
                cluster.worker(name)
            cluster.wait_step(3)
            first = {name: serial(cluster, name) for name in WORKERS}
            for name in WORKERS:
                check_certificate(cluster, name)
            assert cluster.counted("heddle_certificates_issued_total", 'by="token"') == 3
            wait_for("the brief token's end", lambda: time.monotonic() > ended)
            check_tokens(cluster, folder, used, brief)
            check_no_secret_is_shown(cluster, [used, brief])
            wait_for("renewals", lambda: cluster.counted("heddle_certificates_issued_total", 'by="renewal"') >= 6)
            restart(cluster)  # It goes on with the store: what was used stays used.
            refused(cluster, "d", used, "has been used")
            wait_for("a renewal by the new one",
                     lambda: cluster.counted("heddle_certificates_issued_total", 'by="renewal"') >= 3)
            for name in WORKERS:
                check_certificate(cluster, name)
                assert serial(cluster, name) != first[name], f"{name} has not renewed"
            assert not cluster.run.events("worker_lost") + cluster.run.events("resumed"), cluster.run.events()
            check_revoked(cluster)
            cluster.wait_step(cluster.run.step() + 5)
            last = cluster.run.step()
        check_same(cluster.run, losses_until(folder, job, last), last)


main()
