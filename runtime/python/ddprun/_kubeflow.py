# SPDX-License-Identifier: BSD-3-Clause
"""Tells Kubeflow Trainer how far a job is, from rank 0 (its proposal 2779, "Track TrainJob progress").

Where its controller wants to know, it gives each pod three variables: the URL of the job's status, and the paths of a
CA certificate and a token. `kubectl get trainjob` then shows the share that is done. A thread posts the newest step
each five seconds, which is as often as the controller allows; the training loop only writes it down.
"""
import atexit
import json
import os
import ssl
import sys
import threading
import time
import urllib.request
from datetime import datetime, timezone
from typing import Any, Optional, Tuple

_INTERVAL = 5.0  # seconds between two posts
_TIMEOUT = 5.0   # seconds for one
_URL, _CA, _TOKEN = ("KUBEFLOW_TRAINER_SERVER_" + name for name in ("URL", "CA_CERT", "TOKEN"))


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """The token is for this server alone."""
        return None


class Reporter:
    """Posts the newest step that `note` was given, until the process ends."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._newest: "Optional[Tuple[int, int]]" = None  # step and total; a tuple is replaced as a whole
        self._posted: "Optional[Tuple[int, int]]" = None
        self._first: "Optional[Tuple[float, int]]" = None  # when the first step was noted, and which
        self._has_complained = False
        self._lock = threading.Lock()  # held while posting
        self._process = os.getpid()
        self._end = threading.Event()
        atexit.register(self._post_last)
        threading.Thread(target=self._post_on, name="ddprun-kubeflow", daemon=True).start()

    def note(self, step: int, total: int) -> None:
        if self._first is None:
            self._first = (time.monotonic(), step)
        self._newest = (step, total)

    def _post_on(self) -> None:
        while not self._end.is_set():
            self._post()
            self._end.wait(_INTERVAL)

    def _post_last(self) -> None:
        if os.getpid() == self._process:  # not in what was forked from it
            self._end.set()
            self._post()

    def _post(self) -> None:
        with self._lock:
            newest = self._newest
            if newest is None or newest == self._posted:
                return
            try:
                self._send(self._status(*newest))
                self._posted = newest
            except Exception as error:  # training goes on, whatever this is
                if not self._has_complained:
                    print(f"ddprun: Kubeflow Trainer is not told of the progress, at {self._url}: {error}; "
                          f"this is tried again every {_INTERVAL:g} s", file=sys.stderr, flush=True)
                self._has_complained = True

    def _status(self, step: int, total: int) -> "dict[str, Any]":
        status = {"progressPercentage": max(0, min(100, step * 100 // total)),
                  "metrics": [{"name": "current_step", "value": str(step)}, {"name": "total_steps", "value": str(total)}],
                  "lastUpdatedTime": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")}
        began, first = self._first or (0.0, step)
        if step > first:
            left = (time.monotonic() - began) / (step - first) * max(0, total - step)
            status["estimatedRemainingSeconds"] = int(left)
        return {"trainerStatus": status}

    def _send(self, body: "dict[str, Any]") -> None:
        if not self._url.startswith("https://"):
            raise ValueError("the address is not https, so that others could read the token")
        with open(os.environ[_TOKEN], encoding="ascii") as file:  # each time: it is replaced before it expires
            token = file.read().strip()
        trust = ssl.create_default_context(cafile=os.environ.get(_CA) or None)
        post = urllib.request.Request(self._url, json.dumps(body).encode(), method="POST", headers={
            "Authorization": "Bearer " + token, "Content-Type": "application/json"})
        opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=trust), _NoRedirects)
        with opener.open(post, timeout=_TIMEOUT):
            pass


def reporter() -> "Optional[Reporter]":
    """Returns what reports for this process; None unless it is rank 0 of a job that Kubeflow Trainer asks for it."""
    url = os.environ.get(_URL)
    return Reporter(url) if url and os.environ.get(_TOKEN) and os.environ.get("RANK", "0") == "0" else None
