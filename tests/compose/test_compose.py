#!/usr/bin/env -S python3 -B
"""test_compose - the shipped Dockerfile and docker-compose.yml on a real engine: the image, the start
order, and what callers see while the database is stopped, killed, paused, cut off, late, and
while everything is restarted in any order.

Prints each figure with its limit. Exit 1: something is not as it should be. Where no engine answers
it says NOT RUN and exits 77, or 1 with WEIR_COMPOSE=required. SPDX-License-Identifier: MIT
"""

import json
import os
import random
import signal
import socket
import statistics
import sys
import time
import traceback

from callers import Caller, Crowd, describe
from engine import Failed, NotRun, Project, ROOT, docker, instant_s, need_engine

NOT_RUN = 77
MOST_SECONDS = 1500  # the build of a machine that has nothing yet included
IMAGE_MB, HEALTH_MS, HEALED_S, ANSWERED_LATE_MS = 110, 50, 5, 50
UNHEALTHY_WITHIN_S = 30
HEALTHY, UNHEALTHY = "health_status: healthy", "health_status: unhealthy"


def check(is_true, words):
    if not is_true:
        raise Failed(words)


def figure(what, value, limit, unit, noise=0.0):
    beside = f", machine's noise {noise:.1f} {unit}" if noise else ""
    print(f"figure: {what}: {value:.2f} {unit} (limit {limit} {unit}{beside})", flush=True)
    check(value <= limit + noise, f"{what}: {value:.2f} {unit}, limit {limit} {unit}")


def poll(is_true, words, limit_s):
    end = time.monotonic() + limit_s
    while not is_true():
        check(time.monotonic() < end, f"not within {limit_s} s: {words}")
        time.sleep(0.05)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


# --- the image ---


def image_is_small_and_plain(shop):
    """The image is small, runs as nobody, and says what it is"""
    image = json.loads(docker("image", "inspect", shop.image))[0]
    config = image["Config"]
    figure("size of the image", image["Size"] / 1e6, IMAGE_MB, "MB")
    user = config["User"].split(":")[0]
    check(user.isdigit() and user != "0", f"it runs as {config['User']!r}")
    check(config["Healthcheck"]["Test"] == ["CMD", "weir", "health"], config["Healthcheck"])
    check(config["StopSignal"] == "SIGTERM", config["StopSignal"])
    check(config["Entrypoint"] == ["weir"] and config["Cmd"] == ["serve"], config)
    labels = config["Labels"]
    for label in ("title", "description", "version", "licenses", "base.name"):
        check(labels.get(f"org.opencontainers.image.{label}"), f"no label for the {label}")
    said = docker("run", "--rm", shop.image, "--version")
    check(said.split()[-1] == labels["org.opencontainers.image.version"],
          f"the label says {labels['org.opencontainers.image.version']}, weir says {said}")


def image_needs_no_shell(shop):
    """It serves without a shell, a writable file, a capability or a network, and ends on SIGTERM"""
    name = f"{shop.name}-alone"
    docker("run", "--detach", "--name", name, "--read-only", "--cap-drop", "ALL", "--network",
           "none", "--tmpfs", "/usr/bin", "--tmpfs", "/usr/sbin",
           "--volume", f"{ROOT}/api:/etc/weir:ro", shop.image)
    try:
        reason = "status 503"  # of a weir that is up, and has not reached its database
        poll(lambda: reason in docker_says("exec", name, "weir", "health"), "weir serves", 20)
        said = docker("exec", name, "sh", "-c", "echo here", check=False)
        check(said != "here", "there is a shell")
        began = time.monotonic()
        docker("stop", name)
        print(f"docker stop took {time.monotonic() - began:.1f} s")
        state = json.loads(docker("inspect", name))[0]["State"]
        check(state["ExitCode"] == 0 and not state["OOMKilled"], f"exit {state['ExitCode']}")
    finally:
        docker("rm", "--force", name, check=False)


def docker_says(*arguments):
    """Its words, also when it fails."""
    try:
        return docker(*arguments)
    except Failed as e:
        return str(e)


# --- up ---


def comes_up(shop):
    """`docker compose up --wait` brings everything up"""
    began = time.monotonic()
    shop.compose("up", "--wait")
    print(f"up in {time.monotonic() - began:.1f} s")
    for service in ("db", "api", "storefront"):
        state = shop.inspect(service)["State"]
        check(state["Status"] == "running", f"{service} is {state['Status']}")
        check(state["Health"]["Status"] == "healthy", f"{service} is {state['Health']['Status']}")


def starts_in_order(shop):
    """Each started when what it depends on was ready, by the containers' own times"""
    state = {s: shop.inspect(s)["State"] for s in ("db", "migrate", "api", "storefront")}
    began = {s: instant_s(state[s]["StartedAt"]) for s in state}
    check(state["migrate"]["ExitCode"] == 0, f"migrate: exit {state['migrate']['ExitCode']}")
    steps = [
        ("db started", began["db"]),
        ("db healthy", shop.events.find("db", HEALTHY, 0)),
        ("migrate started", began["migrate"]),
        ("migrate ended", instant_s(state["migrate"]["FinishedAt"])),
        ("api started", began["api"]),
        ("api healthy", shop.events.find("api", HEALTHY, 0)),
        ("storefront started", began["storefront"]),
    ]
    for what, at in steps:
        check(at is not None, f"never: {what}")
        print(f"  {at - began['db']:6.2f} s  {what}")
    check(steps == sorted(steps, key=lambda step: step[1]), "not in this order")


# In turns: weir health, and as many starts of /bin/true as take the same CPU. What those take beyond
# their CPU is the machine's doing.
HEALTH_TIMES = r"""
set -e
TIMEFORMAT='%U %S'
cpu_us() { # of one, from ten
    local used=$({ time for i in {1..10}; do "$@"; done; } 2>&1)
    used=${used//./}
    echo $(((10#${used% *} + 10#${used#* }) * 100))
}
lap() {
    local a=$EPOCHREALTIME b
    "$@"
    b=$EPOCHREALTIME
    echo -n $((${b/./} - ${a/./})) ''
}
others() { for ((k = 0; k < starts; k++)); do /bin/true; done; }
health_us=$(cpu_us weir health)
true_us=$(cpu_us /bin/true)
starts=$(((health_us + true_us / 2) / true_us))
for i in {1..30}; do lap others; lap weir health; echo $health_us; done
"""


def health_is_quick(shop):
    """`weir health` answers quickly in the container"""
    said = docker("exec", shop.container("api"), "bash", "-c", HEALTH_TIMES)
    laps = [[int(us) / 1000 for us in line.split()] for line in said.splitlines()]
    other, health, cpu = (sorted(times) for times in zip(*laps))
    check(len(health) == 30, "not measured")
    print(f"weir health takes {cpu[0]:.1f} ms of CPU")
    print(f"slowest of 30: {health[-1]:.1f} ms, of others {other[-1]:.1f} ms")
    figure("weir health, median", health[15], HEALTH_MS, "ms", max(other[15] - cpu[0], 0))


# --- callers ---


def crowd_of(shop):
    """Of two stored and two other routes; one caller is in a hurry, the others are not."""
    hurry = {"X-Request-Timeout-Ms": "500"}
    return Crowd([
        Caller(shop.port, "/products/42", 1.0, always_200=True),
        Caller(shop.port, "/categories", 5.0, always_200=True),
        Caller(shop.port, "/products/42/stock", 0.5, always_200=False, headers=hurry),
        Caller(shop.port, "/orders/11", 5.0, always_200=False),
    ], shop.meter.worst_s)


def is_live(caller, since_s):
    samples = caller.since(since_s)
    return bool(samples) and samples[-1].status == 200 and samples[-1].degraded is None


def wait_until_live(crowd, limit_s=10):
    """Stored ones are 200: what could not be fetched anew is left alone for a while."""
    now_s = time.time()
    for caller in crowd.callers:
        poll(lambda c=caller: is_live(c, now_s) or c.always_200 and c.since(now_s)
             and c.samples[-1].status == 200, f"{caller.path} is answered", limit_s)


def judge_times(caller, samples, crowd):
    figure(f"{caller.path}, slowest answer", 1000 * max(s.took_s for s in samples),
           round(1000 * caller.deadline_s) + ANSWERED_LATE_MS, "ms", crowd.noise_ms)


def judge_answers(crowd, since_s):
    """While weir runs: stored ones 200 always; others an honest status, and all of them in time."""
    for caller in crowd.callers:
        samples = caller.since(since_s)
        print(f"  {caller.path}{' (always 200)' if caller.always_200 else ''}: {describe(samples)}")
    for caller in crowd.callers:
        samples = caller.since(since_s)
        good = (200,) if caller.always_200 else (200, 503, 504)
        wrong = [s for s in samples if s.status not in good]
        check(not wrong, f"{caller.path}: {len(wrong)} of {len(samples)}, as {wrong[:1]}")
        judge_times(caller, samples, crowd)


def fault_bit(crowd, since_s):
    """True when every route was seen to miss the database."""
    def has_missed(caller):
        return any(s.degraded if caller.always_200 else s.status != 200
                   for s in caller.since(since_s))

    # /categories stays fresh for a minute.
    return all(has_missed(c) for c in crowd.callers if c.path != "/categories")


# --- drills ---


def has_no_restart(shop, started_at):
    container = shop.inspect("api")
    print(f"figure: restarts of api: {container['RestartCount']} (must be 0)")
    check(container["RestartCount"] == 0, "api was restarted")
    check(container["State"]["StartedAt"] == started_at, "api was started anew")


def wait_until_well(shop, crowd):
    """When Docker called api healthy for the last time, once it is and the routes are live; and
    what Docker needs for a check, beyond weir's own time."""
    wait_until_live(crowd)
    health = {}

    def is_healthy():
        health.update(shop.inspect("api")["State"]["Health"])
        return health["Status"] == "healthy"

    poll(is_healthy, "api is healthy", 30)
    took_s = [instant_s(one["End"]) - instant_s(one["Start"]) for one in health["Log"]]
    return shop.events.last("api", HEALTHY), max(statistics.median(took_s) - HEALTH_MS / 1000, 0)


def accepting_s(shop, since_s):
    """When the database, by its own log, was ready last; 0: not since then."""
    ready = [line for line in shop.said("db", since_s, "--timestamps")
             if line.endswith("ready to accept connections")]
    return instant_s(ready[-1].split()[0]) if ready else 0


def judge_healing(shop, mending_s, mended_s, healthy_s, check_s):
    """A database that was started is mended when it accepts connections."""
    start_s = max(accepting_s(shop, mending_s) - mended_s, 0)
    print(f"the database needed {start_s:.1f} s after the command that mends")
    after_s = max(healthy_s - mended_s - start_s, 0)
    figure("healthy again after", after_s, HEALED_S, "s", check_s)


def drill(shop, break_it, mend_it):
    """Breaks the database, waits until everyone has noticed, mends it, and judges."""
    started_at = shop.inspect("api")["State"]["StartedAt"]
    with crowd_of(shop) as crowd:
        wait_until_live(crowd)
        began_s = time.time()
        break_it()
        unhealthy_s = shop.events.wait("api", UNHEALTHY, began_s, UNHEALTHY_WITHIN_S)
        poll(lambda: fault_bit(crowd, began_s), "every route has noticed", 15)
        mending_s = time.time()
        mend_it()
        mended_s = time.time()
        healthy_s, check_s = wait_until_well(shop, crowd)
    print(f"unhealthy after {unhealthy_s - began_s:.1f} s, mended after {mended_s - began_s:.1f} s")
    judge_answers(crowd, began_s)
    wavered_s = shop.events.find("api", HEALTHY, unhealthy_s)
    check(wavered_s >= mending_s, "api was called healthy without a database")
    judge_healing(shop, mending_s, mended_s, healthy_s, check_s)
    has_no_restart(shop, started_at)
    check(shop.events.find("storefront", UNHEALTHY, began_s) is None, "storefront was unhealthy")


def db_is_stopped(shop):
    """The database is stopped"""
    db = shop.container("db")
    drill(shop, lambda: docker("stop", db), lambda: docker("start", db))


def db_is_killed(shop):
    """The database is killed"""
    db = shop.container("db")
    drill(shop, lambda: docker("kill", db), lambda: docker("start", db))


def db_is_paused(shop):
    """The database is paused: it accepts connections, and never answers"""
    db = shop.container("db")
    drill(shop, lambda: docker("pause", db), lambda: docker("unpause", db))


def db_is_cut_off(shop):
    """The database is disconnected from the network"""
    db, network = shop.container("db"), f"{shop.name}_data"
    drill(shop, lambda: docker("network", "disconnect", network, db),
          lambda: docker("network", "connect", "--alias", "db", network, db))


def db_is_late(shop):
    """weir starts, answers and heals when the database starts after it"""
    db, api = shop.container("db"), shop.container("api")
    docker("stop", api, db)
    began_s = time.time()
    docker("start", api)
    started_at = shop.inspect("api")["State"]["StartedAt"]
    crowd = Crowd([
        Caller(shop.port, "/health/live", 1.0, always_200=True),
        Caller(shop.port, "/reports/bestsellers", 5.0, always_200=True),  # it has a @fallback
        Caller(shop.port, "/products/42", 1.0, always_200=False),  # nothing is stored yet
        Caller(shop.port, "/orders/11", 5.0, always_200=False),
    ], shop.meter.worst_s)
    poll(lambda: answers(shop.port), "weir answers", 10)
    with crowd:
        begun_s = time.time()
        shop.events.wait("api", UNHEALTHY, began_s, UNHEALTHY_WITHIN_S)
        poll(lambda: all(any(s.status == 503 for s in c.since(begun_s))
                         for c in crowd.callers if not c.always_200), "503 without a database", 10)
        mending_s = time.time()
        docker("start", db)
        mended_s = time.time()
        healthy_s, check_s = wait_until_well(shop, crowd)
        poll(lambda: all(is_live(c, mended_s) for c in crowd.callers), "all are live", 10)
    judge_answers(crowd, begun_s)
    judge_healing(shop, mending_s, mended_s, healthy_s, check_s)
    has_no_restart(shop, started_at)


def answers(port):
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as s:
            s.sendall(b"GET /health/live HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n\r\n")
            return s.recv(100).startswith(b"HTTP/1.1 200 ")
    except OSError:
        return False


def draining_s(shop, since_s):
    """When weir, by its own log, began to end."""
    events = [json.loads(line) for line in shop.said("api", since_s) if line.startswith("{")]
    return next(instant_s(event["time"]) for event in events if event["event"] == "draining")


def restarts_in(shop, order):
    """One after the other, without waiting for anything; then all must be well, by itself."""
    restarts = shop.inspect("api")["RestartCount"]
    with crowd_of(shop) as crowd:
        wait_until_live(crowd)
        began_s = time.time()
        for service in order:
            docker("restart", shop.container(service))
        done_s = time.time()
        down_s = draining_s(shop, began_s)
        up_s = shop.events.wait("api", "start", down_s, 5)
        healthy_s, check_s = wait_until_well(shop, crowd)
    first_s = min(s.at_s + s.took_s
                  for c in crowd.callers for s in c.since(up_s) if s.status is not None)
    for caller in crowd.callers:
        samples = [s for s in caller.since(began_s)
                   if s.at_s + s.took_s < down_s or s.at_s >= first_s]
        print(f"  {caller.path}{' (always 200)' if caller.always_200 else ''}: {describe(samples)}")
        wrong = [s for s in samples if s.status not in (200, 503, 504)]
        check(not wrong, f"{caller.path}: {len(wrong)} of {len(samples)}, as {wrong[:1]}; "
              f"ended at {down_s:.3f}, answered again at {first_s:.3f}")
        if caller.always_200:
            before = [s for s in samples if s.at_s < down_s]
            check(all(s.status == 200 for s in before), f"{caller.path}: not 200 while stored")
        judge_times(caller, samples, crowd)
    check(shop.inspect("api")["RestartCount"] == restarts == 0, "api was restarted by Docker")
    judge_healing(shop, began_s, done_s, healthy_s, check_s)


def any_order_of_restarts(shop):
    """All are restarted, in any order"""
    seed = int(os.environ.get("WEIR_COMPOSE_SEED", time.time_ns() // 1000 % 1000000))
    print(f"WEIR_COMPOSE_SEED={seed}")
    services = ["db", "migrate", "api", "storefront"]
    orders = [services, services[::-1]]
    chance = random.Random(seed)
    while len(orders) < 4:
        order = chance.sample(services, len(services))
        if order not in orders:
            orders.append(order)
    for order in orders:
        print(", ".join(order))
        restarts_in(shop, order)


def up_again(shop):
    """`docker compose up --wait` once more repairs what is left, and keeps the data"""
    shop.compose("exec", "--no-TTY", "db", "psql", "-U", "postgres", "-d", "shop", "-qc",
                 "UPDATE products SET stock = 12345 WHERE id = 7")
    started_at = shop.inspect("api")["State"]["StartedAt"]
    shop.compose("up", "--wait")
    check(shop.inspect("migrate")["State"]["ExitCode"] == 0, "migrate failed")
    has_no_restart(shop, started_at)
    said = shop.compose("exec", "--no-TTY", "db", "psql", "-U", "postgres", "-d", "shop", "-Atc",
                        "SELECT stock FROM products WHERE id = 7")
    check(said == "12345", f"the stock is {said}")


# --- all of it ---

IMAGE = [image_is_small_and_plain, image_needs_no_shell]
UP = [comes_up, starts_in_order]
DRILLS = [health_is_quick, db_is_stopped, db_is_killed, db_is_paused, db_is_cut_off, db_is_late,
          any_order_of_restarts, up_again]


def passes(test, shop):
    title = test.__doc__
    print(f"\n--- {title}", flush=True)
    began = time.monotonic()
    try:
        test(shop)
    except Failed as e:
        print(f"FAILED: {title}: {e}")
    except Exception:  # the other tests can still say something
        traceback.print_exc(file=sys.stdout)
        print(f"FAILED: {title}")
    else:
        print(f"passed: {title} ({time.monotonic() - began:.1f} s)", flush=True)
        return True
    return False


def repair(shop):
    """After a drill that failed in the middle: as if nothing had happened."""
    db = shop.container("db")
    docker("unpause", db, check=False)
    docker("network", "connect", "--alias", "db", f"{shop.name}_data", db, check=False)
    shop.compose("up", "--wait", check=False)


def run_all(shop):
    """How many failed; the drills make no sense on what did not come up."""
    failed = sum(not passes(test, shop) for test in IMAGE)
    for test in UP:
        if not passes(test, shop):
            print(shop.compose("ps", "--all", check=False))
            print(shop.compose("logs", "--tail", "20", check=False))
            return failed + 1
    for test in DRILLS:
        began_s = time.time()
        if not passes(test, shop):
            failed += 1
            print("\n".join(line for line in shop.said("api", began_s)
                            if '"event":"request"' not in line))
            repair(shop)
    return failed


def give_up(number, _):
    raise SystemExit(f"FAILED: {signal.Signals(number).name}: it took too long, or was told to end")


def main():
    for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, give_up)
    signal.alarm(MOST_SECONDS)
    try:
        need_engine(["debian:trixie-slim", "postgres:17"])
    except NotRun as e:
        print(f"NOT RUN: {e}")
        return 1 if os.environ.get("WEIR_COMPOSE") == "required" else NOT_RUN
    shop = Project(f"weir-test-{os.getpid()}", free_port())
    try:
        began = time.monotonic()
        shop.compose("build", "--quiet", timeout_s=MOST_SECONDS)
        print(f"built in {time.monotonic() - began:.0f} s", flush=True)
        shop.watch()
        failed = run_all(shop)
    finally:
        signal.alarm(0)
        shop.close()
    print(f"\n{failed} failed" if failed else "\nall passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
