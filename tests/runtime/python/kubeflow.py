# SPDX-License-Identifier: BSD-3-Clause
"""progress(step, total) tells Kubeflow Trainer, here a server that speaks its protocol, how far a job is."""
import contextlib
import http.server
import json
import shutil
import ssl
import subprocess
import threading

from promises import Skip, promise

PATH = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/team/trainjobs/bert/status"
PROGRAM = """
import ddprun
for step in range({steps}):
    ddprun.progress(step + 1, 8)
"""


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.posts.append((self.path, dict(self.headers), json.loads(body)))
        self.send_response(self.server.code)
        self.send_header("Location", "/elsewhere")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def trainer(callers, code=200):
    """Yields a server, the variables that it gives to pods, and the file of its token."""
    if not shutil.which("openssl"):
        raise Skip("there is no openssl to make a certificate with")
    key, certificate = callers.path("key.pem"), callers.path("ca.crt")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-keyout", key, "-out", certificate, "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.posts, server.code = [], code
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server, {"KUBEFLOW_TRAINER_SERVER_URL": f"https://localhost:{server.server_port}{PATH}",
                       "KUBEFLOW_TRAINER_SERVER_CA_CERT": certificate,
                       "KUBEFLOW_TRAINER_SERVER_TOKEN": callers.write("token", "secret-of-the-pod\n")}
    finally:
        server.shutdown()
        server.server_close()


@promise("progress with a total tells Kubeflow Trainer the share that is done, from rank 0, at the end in any case")
def _(callers):
    with trainer(callers) as (server, environment):
        for rank in "0", "1":
            callers.run("-c", PROGRAM.format(steps=6), environment={**environment, "RANK": rank})
        assert 1 <= len(server.posts) <= 2, server.posts  # the first step, and the last; the next would be 5 s later
        path, headers, body = server.posts[-1]
        assert path == PATH, path
        assert headers["Authorization"] == "Bearer secret-of-the-pod", headers
        assert headers["Content-Type"] == "application/json", headers
        status = body["trainerStatus"]
        assert status["progressPercentage"] == 75, status
        assert status["estimatedRemainingSeconds"] >= 0, status
        assert {"name": "current_step", "value": "6"} in status["metrics"], status
        assert status["lastUpdatedTime"].endswith("Z"), status


@promise("progress without a total, or without Kubeflow Trainer's variables, posts nothing")
def _(callers):
    with trainer(callers) as (server, environment):
        callers.run("-c", "import ddprun; ddprun.progress(3)", environment=environment)
        del environment["KUBEFLOW_TRAINER_SERVER_TOKEN"]
        callers.run("-c", "import ddprun; ddprun.progress(3, 8)", environment=environment)
        assert server.posts == [], server.posts


@promise("a job goes on where Kubeflow Trainer cannot be told, says so once, and sends the token nowhere else")
def _(callers):
    with trainer(callers, code=307) as (server, environment):
        lines = said_with(callers, environment)
        assert "HTTP Error 307" in lines, lines
        assert {path for path, _, _ in server.posts} == {PATH}, server.posts
        other = callers.write("other.crt", open(environment["KUBEFLOW_TRAINER_SERVER_CA_CERT"]).read())
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                        "-nodes", "-keyout", callers.path("other.pem"), "-out", other, "-subj", "/CN=localhost"],
                       check=True, capture_output=True)
        server.posts.clear()
        lines = said_with(callers, {**environment, "KUBEFLOW_TRAINER_SERVER_CA_CERT": other})
        assert "CERTIFICATE_VERIFY_FAILED" in lines, lines
        plain = environment["KUBEFLOW_TRAINER_SERVER_URL"].replace("https:", "http:")
        lines = said_with(callers, {**environment, "KUBEFLOW_TRAINER_SERVER_URL": plain})
        assert "is not https" in lines, lines
        assert server.posts == [], server.posts


def said_with(callers, environment):
    """Returns the one line that a job says which cannot post."""
    job = callers.start("-c", PROGRAM.format(steps=3), environment=environment)
    assert job.wait() == 0, job.said()
    lines = job.err()
    assert lines.count("Kubeflow Trainer is not told of the progress") == 1, lines
    return lines
