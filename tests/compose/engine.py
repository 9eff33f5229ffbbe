"""engine - what the test tells Docker and asks it: commands, one Compose project, its events.

Everything is named after one project, and close() takes away all that it made but Docker's build
cache. SPDX-License-Identifier: MIT
"""

import json
import os
import re
import subprocess
import threading
import time
from datetime import datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class NotRun(Exception):
    """This machine cannot run the test; that is no verdict on weir."""


class Failed(Exception):
    """weir, or its Dockerfile or Compose file, does not do what it should."""


def run(*command, environment=None, check=True, timeout_s=300):
    """What a command says on standard output; its own words in Failed when it fails."""
    done = subprocess.run(
        command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=timeout_s)
    if check and done.returncode != 0:
        words = (done.stdout + done.stderr).strip()
        raise Failed(f"{' '.join(command)}: exit {done.returncode}\n{words[-4000:]}")
    return done.stdout.strip()


def docker(*arguments, **options):
    return run("docker", *arguments, **options)


def need_engine(images):
    """NotRun unless an engine and Compose 2 answer, and the images are here or can be pulled."""
    try:
        docker("version", "--format", "{{.Server.Version}}", timeout_s=30)
        version = docker("compose", "version", "--short").lstrip("v")
    except (Failed, OSError, subprocess.TimeoutExpired) as e:
        raise NotRun(f"no Docker engine with Compose answers ({str(e).splitlines()[0]})") from e
    if int(version.split(".")[0]) < 2:
        raise NotRun(f"Compose is {version}, version 2 is needed")
    for image in images:
        try:
            if not docker("image", "ls", "--quiet", image):
                docker("pull", "--quiet", image)
        except Failed as e:
            raise NotRun(f"{image} is not here, and cannot be pulled") from e


def instant_s(text):
    """Docker's 2026-11-30T09:01:05.123456789Z, or with +01:00, as seconds since 1970."""
    whole, fraction, zone = re.fullmatch(r"([^.Z+]+?)(\.\d+)?(Z|[+-]\d\d:\d\d)", text).groups()
    at = datetime.fromisoformat(whole + zone.replace("Z", "+00:00")).timestamp()
    return at + float(fraction or 0)


class Project:
    """docker-compose.yml, up under a name and on a port of its own."""

    def __init__(self, name, port):
        self.name = name
        self.port = port
        self.image = f"{name}:latest"
        self.environment = dict(
            os.environ, COMPOSE_PROJECT_NAME=name, WEIR_IMAGE=self.image, SHOP_ADDRESS="127.0.0.1",
            SHOP_PORT=str(port))
        self.events = self.meter = None

    def compose(self, *arguments, **options):
        return docker("compose", *arguments, environment=self.environment, **options)

    def container(self, service):
        """The name by which Docker knows it."""
        return f"{self.name}-{service}-1"

    def inspect(self, service):
        return json.loads(docker("inspect", self.container(service)))[0]

    def said(self, service, since_s, *options):
        """Its log since then, on both outputs."""
        done = subprocess.run(
            ["docker", "logs", *options, "--since", f"{since_s:.3f}", self.container(service)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return done.stdout.splitlines()

    def watch(self):
        self.events = Events(self.name)
        self.meter = Meter(f"{self.name}-meter", self.image)

    def close(self):
        for one in (self.events, self.meter):
            if one is not None:
                one.close()
        # A paused container cannot be stopped.
        ours = ("--filter", f"label=com.docker.compose.project={self.name}")
        paused = docker("ps", "--quiet", "--filter", "status=paused", *ours, check=False)
        for name in paused.split():
            docker("unpause", name, check=False)
        self.compose("down", "--volumes", "--remove-orphans", "--timeout", "5", check=False)
        docker("image", "rm", "--force", self.image, check=False)
        left = [docker(*kind, "--quiet", *ours)
                for kind in (("ps", "--all"), ("network", "ls"), ("volume", "ls"))]
        if any(left):
            raise Failed(f"left behind: {left}")


class Lines:
    """A docker command that goes on and on; read_line() gets each line of it, on a thread."""

    def __init__(self, *arguments):
        self.child = subprocess.Popen(["docker", *arguments], stdin=subprocess.DEVNULL,
                                      stdout=subprocess.PIPE, text=True)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.child.stdout:
            self.read_line(line)

    def close(self):
        self.child.terminate()
        self.child.wait()
        self.reader.join()
        self.child.stdout.close()


class Meter(Lines):
    """By how much short sleeps in a container beside api overrun: what a machine that has other
    things to do adds to the times that weir means."""

    SCRIPT = """exec 3<> <(:); while :; do
        a=$EPOCHREALTIME; read -t 0.005 -u 3; b=$EPOCHREALTIME; late=$((${b/./} - ${a/./} - 5000))
        [ $late -lt 2000 ] || echo ${b/./} $late
    done"""

    def __init__(self, name, image):
        self.name = name
        self.seen = []  # (seconds since 1970, late by so many seconds)
        super().__init__("run", "--rm", "--name", name, "--network", "none", "--entrypoint", "bash",
                         image, "-c", self.SCRIPT)

    def read_line(self, line):
        at_us, late_us = line.split()
        self.seen.append((int(at_us) / 1e6, int(late_us) / 1e6))

    def worst_s(self, since_s):
        return max((late_s for at_s, late_s in list(self.seen) if at_s >= since_s), default=0.0)

    def close(self):
        docker("rm", "--force", self.name, check=False)
        super().close()


class Events(Lines):
    """What Docker reports of a project's containers, with Docker's own times, as it happens."""

    def __init__(self, project):
        self.changed = threading.Condition()  # its lock is reentrant
        self.seen = []  # (seconds since 1970, service, what)
        super().__init__("events", "--format", "{{json .}}", "--filter", "type=container",
                         "--filter", f"label=com.docker.compose.project={project}")

    def read_line(self, line):
        event = json.loads(line)
        with self.changed:
            self.seen.append((event["timeNano"] / 1e9,
                              event["Actor"]["Attributes"].get("com.docker.compose.service"),
                              event["Action"]))
            self.changed.notify_all()

    def find(self, service, what, after_s):
        """When it happened for the first time since; None: it did not."""
        with self.changed:
            return next((at for at, of, action in self.seen
                         if of == service and action == what and at >= after_s), None)

    def last(self, service, what):
        with self.changed:
            return max((at for at, of, action in self.seen if of == service and action == what),
                       default=None)

    def wait(self, service, what, after_s, limit_s):
        """When it happened; Failed if it does not within limit_s from now."""
        end = time.monotonic() + limit_s
        while True:
            with self.changed:
                at = self.find(service, what, after_s)
                if at is not None:
                    return at
                left_s = end - time.monotonic()
                if left_s <= 0:
                    raise Failed(f"{service}: no '{what}' in {limit_s} s")
                self.changed.wait(left_s)
