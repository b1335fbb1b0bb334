"""An S3 store for tests that is not ours: moto's server, with boto3 as an independent reader and writer, and a proxy in
front of it that does what networks and stores do.

Needs PyPI's moto and boto3: in HEDDLE_MOTO_PYTHON, or in a virtual environment in the build folder, which is made when
PyPI can be reached.
"""
import hashlib
import http.client
import http.server
import logging
import os
import random
import socket
import sys
import threading

import environments

PACKAGES = ("moto[server]==5.2.*", "boto3")
BUCKET = "heddle-test"
SECRET = "not-to-be-seen-anywhere"
ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1",
               "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}


def require(build):
    """Goes on in an interpreter that has moto, or ends the test with 77 (skipped)."""
    if os.environ.get("HEDDLE_TEST_INNER") == "moto":
        return
    folder = os.path.join(build, "moto-venv")
    python, ready = environments.interpreter("HEDDLE_MOTO_PYTHON", folder, "moto.server, boto3", PACKAGES, system=False)
    if not ready:
        print(f"SKIPPED: no Python with moto ({python}), and PyPI could not provide it", file=sys.stderr)
        sys.exit(77)
    os.environ["HEDDLE_TEST_INNER"] = "moto"
    os.execv(python, [python] + sys.argv)


def is_signed(command, path, headers, body):
    """Whether botocore, another implementation, signs the request as its sender did, the body included."""
    from botocore import auth, awsrequest, credentials  # pylint: disable=import-outside-toplevel,import-error
    claimed = headers.get("Authorization", "")
    if "SignedHeaders=" not in claimed or headers.get("x-amz-content-sha256") != hashlib.sha256(body).hexdigest():
        return False
    names = claimed.split("SignedHeaders=")[1].split(",")[0].split(";")
    needed = {"host", "x-amz-content-sha256", "x-amz-date"}
    if "x-amz-security-token" in headers:
        needed.add("x-amz-security-token")
    if not needed <= set(names):
        return False
    request = awsrequest.AWSRequest(method=command, url=f"http://{headers['Host']}{path}", data=body,
                                    headers={name: headers[name] for name in headers if name.lower() in names})
    request.context.update(timestamp=headers["X-Amz-Date"], payload_signing_enabled=True)
    signer = auth.S3SigV4Auth(credentials.Credentials(ENVIRONMENT["AWS_ACCESS_KEY_ID"], SECRET), "s3",
                              ENVIRONMENT["AWS_REGION"])
    signature = signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request)
    return claimed.endswith(f"Signature={signature}")


class Proxy:
    """Hands requests on to the store, if they are signed. `fault(method, path, body)` names what happens to one:
      slow_down  503, as of a store that is overloaded          forbidden  403 AccessDenied
      drop       the connection ends without an answer          drop_body  it ends in the middle of the answer
      shorter    a well-formed answer without its last bytes    hang       no answer for as long as the proxy lives
      corrupt_up, corrupt_down  one bit of the body is flipped on the way there, or back
      unconditional  the store does not know If-Match and If-None-Match
    """

    def __init__(self, port):
        self.store = port
        self.fault = lambda method, path, body: None
        self.requests = []
        self.ended = threading.Event()
        self.connections = 0
        self.changed = threading.Condition()
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            """One connection."""
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):  # pylint: disable=arguments-differ
                pass

            def handle(self):
                proxy.count(1)
                try:
                    super().handle()
                finally:
                    proxy.count(-1)

            def serve(self):
                proxy.serve(self)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = serve

        class Server(http.server.ThreadingHTTPServer):
            """Connections that a killed client leaves behind are no news."""
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_):  # pylint: disable=arguments-differ
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def count(self, change):
        with self.changed:
            self.connections += change
            self.changed.notify_all()

    def settle(self):
        """Returns once what clients that have ended had sent is done, or refused."""
        probe = http.client.HTTPConnection("127.0.0.1", self.server.server_port, timeout=60)
        probe.request("GET", "/")  # Connections are taken in order: those before this one are known now.
        probe.getresponse().read()
        probe.close()
        with self.changed:
            assert self.changed.wait_for(lambda: self.connections == 0, 60), f"{self.connections} connections are open"

    def serve(self, handler):
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        self.requests.append((handler.command, handler.path))
        if not is_signed(handler.command, handler.path, dict(handler.headers), body):
            refusal = b"<Error><Code>SignatureDoesNotMatch</Code><Message>no</Message></Error>"
            self.answer(handler, 403, {}, refusal, None)
            return
        fault = self.fault(handler.command, handler.path, body)
        if fault == "hang":
            self.count(-1)  # Nothing will come of it.
            self.ended.wait()
            self.count(1)
        if fault in ("hang", "drop"):
            handler.close_connection = True
            handler.connection.shutdown(socket.SHUT_RDWR)
            return
        if fault in ("slow_down", "forbidden"):
            status, code = (503, "SlowDown") if fault == "slow_down" else (403, "AccessDenied")
            self.answer(handler, status, {}, f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode(), None)
            return
        if fault == "corrupt_up" and body:
            body = flipped(body)
        headers = dict(handler.headers)
        if fault == "unconditional":
            headers = {name: headers[name] for name in headers if name.lower() not in ("if-match", "if-none-match")}
        store = http.client.HTTPConnection("127.0.0.1", self.store, timeout=60)
        store.request(handler.command, handler.path, body, headers)
        reply = store.getresponse()
        content = reply.read()
        store.close()
        if fault == "corrupt_down" and content:
            content = flipped(content)
        self.answer(handler, reply.status, dict(reply.headers), content, fault)

    @staticmethod
    def answer(handler, status, headers, content, fault):
        if fault == "shorter":
            content = content[:-7]
        length = headers.get("Content-Length", "0") if handler.command == "HEAD" else str(len(content))
        handler.send_response(status)
        for name, value in headers.items():
            if name.lower() not in ("content-length", "connection", "transfer-encoding", "date", "server"):
                handler.send_header(name, value)
        handler.send_header("Content-Length", length)
        handler.end_headers()
        if fault == "drop_body":
            handler.wfile.write(content[:len(content) // 2])
            handler.wfile.flush()
            handler.close_connection = True
            handler.connection.shutdown(socket.SHUT_RDWR)
        elif handler.command != "HEAD":
            handler.wfile.write(content)

    def close(self):
        self.ended.set()
        self.server.shutdown()


def flipped(content):
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1:]


class Store:
    """moto's server in this process, a proxy in front of it, and boto3 behind the proxy's back."""

    def __enter__(self):
        import boto3  # pylint: disable=import-outside-toplevel,import-error
        from moto.server import ThreadedMotoServer  # pylint: disable=import-outside-toplevel,import-error
        os.environ.update(ENVIRONMENT)
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self.moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self.moto.start()
        _, port = self.moto.get_host_and_port()
        self.proxy = Proxy(port)
        self.s3 = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1")
        self.s3.create_bucket(Bucket=BUCKET)
        os.environ["AWS_ENDPOINT_URL"] = self.proxy.url
        return self

    def __exit__(self, *_):
        self.proxy.close()
        self.moto.stop()

    def keys(self, prefix=""):
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return {entry["Key"]: entry["Size"] for page in pages for entry in page.get("Contents", ())}

    def uploads(self):
        return self.s3.list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])

    def get(self, key):
        return self.s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()

    def put(self, key, content):
        self.s3.put_object(Bucket=BUCKET, Key=key, Body=content)

    def download(self, prefix, folder):
        for key in self.keys(prefix):
            path = os.path.join(folder, key[len(prefix):].lstrip("/"))
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(self.get(key))

    def upload(self, folder, prefix):
        for parent, _, names in os.walk(folder):
            for name in names:
                path = os.path.join(parent, name)
                with open(path, "rb") as file:
                    self.put(f"{prefix}/{os.path.relpath(path, folder)}", file.read())


def sometimes(faults, probability, seed):
    """A `fault` that strikes that often, and never a request for the third time in a row. Only files are made shorter:
    a listing that is none is an error, not a reason to ask again."""
    dice = random.Random(seed)
    lock = threading.Lock()
    struck = {}

    def fault(method, path, _):
        with lock:
            key = (method, path)
            if struck.get(key, 0) < 2 and dice.random() < probability:
                struck[key] = struck.get(key, 0) + 1
                is_file = method == "GET" and path.endswith(".h5")
                return dice.choice([one for one in faults if one != "shorter" or is_file])
            struck[key] = 0
            return None

    return fault
