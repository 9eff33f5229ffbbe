"""callers - threads that ask one path each, again and again, and keep what they saw; and how late
this machine lets them run meanwhile. SPDX-License-Identifier: MIT
"""

import http.client
import threading
import time
from collections import Counter, namedtuple

# at_s: seconds since 1970, when it was sent; status: None when no answer came, and then `why`.
Sample = namedtuple("Sample", "at_s took_s status degraded why")


def ask(connection, path, headers):
    at_s, began = time.time(), time.monotonic()
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        body = answer.read()
    except (OSError, http.client.HTTPException) as e:
        connection.close()
        return Sample(at_s, time.monotonic() - began, None, None, repr(e))
    if answer.will_close:
        connection.close()
    return Sample(at_s, time.monotonic() - began, answer.status,
                  answer.getheader("Weir-Degraded"), body.decode(errors="replace"))


class Caller:
    """One who keeps a connection, as services do. Every answer comes in deadline_s; with always_200
    it is a 200, too, as there is always something to answer with."""

    def __init__(self, port, path, deadline_s, always_200, headers=None, pause_s=0.05):
        self.path, self.deadline_s, self.always_200 = path, deadline_s, always_200
        self.headers, self.pause_s = headers or {}, pause_s
        # Longer than any deadline: what takes longer is not answered at all.
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=deadline_s + 5)
        self.samples = []
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.repeat, daemon=True)

    def repeat(self):
        while not self.over.is_set():
            self.samples.append(ask(self.connection, self.path, self.headers))
            self.over.wait(self.pause_s)
        self.connection.close()

    def since(self, at_s):
        return [s for s in list(self.samples) if s.at_s >= at_s]


class Lateness:
    """By how much short sleeps in this process overrun: what callers add to the times they see."""

    def __init__(self):
        self.worst_s = 0.0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.repeat, daemon=True)

    def repeat(self):
        while not self.over.is_set():
            began = time.monotonic()
            time.sleep(0.005)
            self.worst_s = max(self.worst_s, time.monotonic() - began - 0.005)


class Crowd:
    """All callers, and a meter beside them, for the length of a `with`. `container_late_s` tells
    how late threads in a container ran since then."""

    def __init__(self, callers, container_late_s):
        self.callers = callers
        self.lateness = Lateness()
        self.container_late_s = container_late_s
        self.noise_ms = 0.0  # of this machine, on both ends of a request; known at the end

    def __enter__(self):
        self.began_s = time.time()
        for one in (*self.callers, self.lateness):
            one.thread.start()
        return self

    def __exit__(self, *_):
        for one in (*self.callers, self.lateness):
            one.over.set()
        for one in (*self.callers, self.lateness):
            one.thread.join()
        self.noise_ms = 1000 * (self.lateness.worst_s + self.container_late_s(self.began_s))


def describe(samples):
    """'612 answers: 410 x 200, 150 x 200 stale, 52 x 503; slowest 23 ms'"""
    kinds = Counter()
    for s in samples:
        kind = "no answer" if s.status is None else str(s.status)
        kinds[kind + (" " + s.degraded.split(";")[0] if s.degraded else "")] += 1
    words = ", ".join(f"{count} x {kind}" for kind, count in sorted(kinds.items()))
    slowest_ms = 1000 * max((s.took_s for s in samples), default=0)
    return f"{len(samples)} requests: {words}; slowest {slowest_ms:.0f} ms"
