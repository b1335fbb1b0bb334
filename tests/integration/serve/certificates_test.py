"""Who may come in: certificates of `heddle certs`, read by OpenSSL's own program, a coordinator and workers that have
them, and everybody who should not come in while a job trains, which does not notice.
"""
import json
import os
import re
import sqlite3
import stat
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import HEDDLE, Scratch, check_same, get, heddle, processes, wait_for  # noqa: E402
from harness.text_data import prose  # noqa: E402
from harness.served import WORKERS, Cluster, undisturbed_losses, write_job  # noqa: E402

STEPS = 300  # Many more than strangers have the time for.


def openssl(*arguments, code=0):
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, timeout=60, check=False,
                          stdin=subprocess.DEVNULL)
    assert done.returncode == code, (arguments, done)
    return done.stdout + done.stderr


def check_refused(done, what):
    assert done.returncode == 2 and re.search(what, done.stderr) and done.stderr.count("\n") == 1, done


def files_of(folder):
    """{path: content} below it."""
    found = {}
    for where, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(where, name), "rb") as file:
                found[os.path.relpath(file.name, folder)] = file.read()
    return found


def check_authority(lab):
    """What was made is what OpenSSL takes for it, and is not made twice."""
    before = files_of(lab)
    check_refused(heddle("certs", "init", lab), "never overwritten")
    check_refused(heddle("certs", "issue", lab, "--role", "worker/a"), "never overwritten")
    assert files_of(lab) == before
    root = os.path.join(lab, "authority", "certificate.pem")
    parties = {"coordinator": "sslserver", "operator": "sslclient", "viewer": "sslclient", "worker/b": "sslclient"}
    for party, purpose in parties.items():
        certificate = os.path.join(lab, party, "certificate.pem")
        openssl("verify", "-x509_strict", "-CAfile", root, "-purpose", purpose, certificate)
        other = {"sslserver": "sslclient", "sslclient": "sslserver"}[purpose]
        openssl("verify", "-CAfile", root, "-purpose", other, certificate, code=2)
        names = openssl("x509", "-in", certificate, "-noout", "-ext", "subjectAltName")
        assert f"URI:heddle:{party}" in names and ("DNS:" in names) == (party == "coordinator"), names
    modes = {path: stat.S_IMODE(os.stat(os.path.join(lab, path)).st_mode) for path in before}
    assert {mode for path, mode in modes.items() if path.endswith("key.pem")} == {0o600}, modes
    added = heddle("certs", "issue", lab, "--role", "worker/d", "--days", "3")
    assert added.returncode == 0 and added.stdout == os.path.join(lab, "worker", "d") + "\n", added
    openssl("x509", "-in", os.path.join(lab, "worker", "d", "certificate.pem"), "-noout", "-checkend", "172800")


def check_tls(cluster, lab):
    """Another program's TLS finds the coordinator that it expects, and nothing old."""
    command = ["s_client", "-connect", cluster.listen, "-CAfile", os.path.join(lab, "authority", "certificate.pem"),
            "-verify_hostname", "coordinator.heddle", "-verify_return_error", "-alpn", "h2", "-brief"]
    assert "Verification: OK" in openssl(*command)
    openssl(*command, "-tls1_1", "-cipher", "ALL:@SECLEVEL=0", code=1)


def expired(lab, folder):
    """A folder like an operator's whose certificate was of the lab, and is no more."""
    party = os.path.join(folder, "expired")
    os.mkdir(party)
    key, request = os.path.join(party, "key.pem"), os.path.join(party, "request")
    openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out",
            request, "-subj", "/CN=operator")
    os.chmod(key, 0o600)
    extensions = os.path.join(party, "extensions")
    with open(extensions, "w", encoding="ascii") as file:
        file.write("subjectAltName=URI:heddle:operator\nextendedKeyUsage=clientAuth\n")
    openssl("x509", "-req", "-in", request, "-CA", os.path.join(lab, "authority", "certificate.pem"), "-CAkey",
            os.path.join(lab, "authority", "key.pem"), "-set_serial", "7", "-days", "0", "-extfile", extensions,
            "-out", os.path.join(party, "certificate.pem"))
    os.link(os.path.join(lab, "operator", "authority.pem"), os.path.join(party, "authority.pem"))
    openssl_end = os.path.join(party, "certificate.pem")
    wait_for("the end of its time", lambda: subprocess.run(
        ["openssl", "x509", "-in", openssl_end, "-noout", "-checkend", "0"], stdout=subprocess.DEVNULL,
        check=False).returncode == 1)
    return party


def check_strangers(cluster, job, lab, foreign, folder):
    """Everybody who may not come in is told why, in one line."""
    def call(*words, certs=None):
        return heddle(*words, "--coordinator", cluster.listen, *(["--certs", certs] if certs else []))

    submit = ("submit", job, "--out", os.path.join(folder, "stranger"))
    check_refused(call(*submit), "with a certificate only: give --certs")
    check_refused(call("status"), "with a certificate only: give --certs")
    check_refused(call(*submit, certs=os.path.join(lab, "viewer")), "viewer may not call Submit")
    check_refused(call("drain", "a", certs=os.path.join(lab, "worker", "b")), "worker/b may not call Drain")
    check_refused(call("status", certs=os.path.join(foreign, "operator")), "not this lab's coordinator")
    check_refused(call("status", certs=expired(lab, folder)), "certificate has expired")
    assert not os.path.exists(os.path.join(folder, "stranger"))


def check_events(cluster, lab):
    """Who may look may also read the events, of the coordinator."""
    for party, code in (("viewer", 0), ("operator", 0), ("worker/a", 2)):
        done = heddle("events", "--coordinator", cluster.listen, "--certs", os.path.join(lab, party))
        assert done.returncode == code and ("job_started" in done.stdout) == (code == 0), done


def follow(cluster, lab):
    """Who follows a run's folder asks now and then whether the coordinator is there, with a certificate and without."""
    return [subprocess.Popen([HEDDLE, "events", "--run", cluster.run.folder, "--follow", *certs],
                             stdout=subprocess.DEVNULL, preexec_fn=processes.tied())
            for certs in ([], ["--certs", os.path.join(lab, "viewer")])]


def check_strange_workers(cluster, lab, foreign):
    """Workers that may not come in end with one line of why."""
    for certs, name, what in (([], "d", "with a certificate only: give --certs"),
                              (["--certs", os.path.join(foreign, "worker", "a")], "a", "not this lab's coordinator"),
                              (["--certs", os.path.join(lab, "worker", "a")], "d", "expected one of worker/d"),
                              (["--certs", os.path.join(lab, "viewer")], "d", "expected one of worker/d")):
        done = heddle("worker", "--coordinator", cluster.listen, "--name", name, *certs)
        lines = [line for line in done.stderr.splitlines() if re.search(what, line)]
        assert done.returncode == 2 and len(lines) == 1, done


def metrics(cluster):
    with open(os.path.join(cluster.store, "job.json"), encoding="utf-8") as file:
        address = json.load(file)["metrics"]
    return get(address)


def refusals(cluster):
    return {reason: float(count) for reason, count in
            re.findall(r'^heddle_control_refused_total\{reason="(\w+)"\} (\S+)$', metrics(cluster),
                       re.MULTILINE)}


def check_no_secret_is_shown(cluster, lab):
    """Neither the job's secret nor a key is in a log, a job's file or a process list."""
    with sqlite3.connect(f"file:{cluster.store}/coordinator.sqlite?mode=ro", uri=True) as store:
        [state] = store.execute("SELECT state FROM coordinator").fetchone()
    secrets = [bytes.fromhex(json.loads(state)["secret"])]
    for path, content in files_of(lab).items():
        if path.endswith("key.pem"):
            secrets.append(content.splitlines()[1])
    assert all(len(secret) >= 32 for secret in secrets) and len(secrets) > 5
    shown = dict(files_of(cluster.run.folder), log=cluster.errors().encode())
    for process in [cluster.coordinator, *cluster.workers.values()]:
        with open(f"/proc/{process.pid}/cmdline", "rb") as file:
            shown[f"process {process.pid}"] = file.read()
    for place, text in shown.items():
        assert not any(secret in text for secret in secrets), f"a secret is in {place}"
        assert b"PRIVATE KEY" not in text, place


def main():
    with Scratch() as folder:
        lab, foreign = os.path.join(folder, "lab"), os.path.join(folder, "foreign")
        names = [word for name in WORKERS for word in ("--worker", name)]
        for place in (lab, foreign):
            made = heddle("certs", "init", place, *names)
            assert made.returncode == 0 and made.stdout == made.stderr == "", made
        check_authority(lab)
        job = write_job(folder, prose(folder), STEPS)
        undisturbed = undisturbed_losses(folder, job)
        with Cluster(folder, "served", lab=lab) as cluster:
            cluster.serve()
            check_tls(cluster, lab)
            cluster.submit(job)
            for name in WORKERS:
                cluster.worker(name)
            cluster.wait_step(3)
            check_events(cluster, lab)
            followers = follow(cluster, lab)
            check_strangers(cluster, job, lab, foreign, folder)
            check_strange_workers(cluster, lab, foreign)
            counted = refusals(cluster)
            # The followers are not among them.
            assert {"no_tls": 3, "role": 3}.items() <= counted.items(), counted
            assert cluster.status()["phase"] == "training", "the strangers took longer than the job"
            check_no_secret_is_shown(cluster, lab)
            assert [follower.poll() for follower in followers] == [None, None], "a follower has ended before the job"
            cluster.finish()
            assert [follower.wait(60) for follower in followers] == [0, 0]
            lost = cluster.run.events("worker_lost") + cluster.run.events("resumed")
            assert not lost, lost
            check_same(cluster.run, undisturbed, STEPS)
            print(f"refused {counted}")


main()
