#!/usr/bin/python3
"""api/weir.schema.json against the demo's config and against wrong ones: whatever the schema refuses,
`weir check` refuses too, and the other way round where a value alone decides.

SPDX-License-Identifier: MIT
"""
import copy
import json
import os
import subprocess
import sys
import tempfile

try:
    from jsonschema import Draft202012Validator
except ImportError:
    sys.exit("NOT RUN: python3-jsonschema is missing")

SOURCE, WEIR = os.environ["WEIR_SOURCE"], os.environ["WEIR_BIN"]
PLAIN = {"dependencies": {"primary": {"kind": "postgres", "conninfo": "host=x dbname=x user=x"}}}

# Path of what is set, and what to.
GOOD = [
    (("$schema",), "weir.schema.json"),
    (("server", "port"), 65535),
    (("server", "max_body"), "64KiB"),
    (("server", "request_timeout"), "2.5s"),
    (("server", "request_timeout"), "${WEIR_TEST_TIMEOUT:-3s}"),
    (("server", "cors_origins"), ["https://a.example", "*"]),
    (("server", "address"), "::1"),
    (("server", "trusted_proxies"), []),
    (("admin", "token_file"), None),
    (("cache", "shared"), None),
    (("log", "level"), "${WEIR_TEST_LEVEL:-warn}"),
    (("log", "parameters"), False),
    (("dependencies", "primary", "connections"), None),
    (("dependencies", "primary", "connections"), 8),
    (("dependencies", "primary", "access"), "read"),
    (("dependencies", "primary", "retry"), {"attempts": 1, "budget": 0.5}),
    (("dependencies", "primary", "breaker"), {"mode": "forced-open", "failure_rate": None}),
    (("dependencies", "other-1"), {"kind": "postgres", "conninfo": "host=y"}),
]
WRONG = [
    (("servre",), {}),
    (("auth",), {}),
    (("dependencies",), {}),
    (("dependencies",), []),
    (("dependencies", "Primary"), {"kind": "postgres", "conninfo": "host=y"}),
    (("dependencies", "other"), {"kind": "postgres"}),
    (("dependencies", "other"), {"conninfo": "host=y"}),
    (("dependencies", "primary", "kind"), "redis"),
    (("dependencies", "primary", "conninfo"), ""),
    (("dependencies", "primary", "prepare"), False),
    (("dependencies", "primary", "max_lag"), "5s"),
    (("dependencies", "primary", "connections"), "8"),
    (("dependencies", "primary", "max_concurrent"), 8),
    (("dependencies", "primary", "bulkhead"), {"max_concurrent": 0}),
    (("dependencies", "primary", "breaker"), {"mode": "shadow"}),
    (("dependencies", "primary", "breaker"), {"failure_rate": 0.5}),
    (("dependencies", "primary", "retry"), {"budget": 2}),
    (("dependencies", "primary", "retry"), {"attempts": 3}),
    (("dependencies", "primary", "probe"), {"interval": 1}),
    (("server",), 3),
    (("server", "port"), 0),
    (("server", "port"), "80"),
    (("server", "port"), 65536),
    (("server", "port"), None),
    (("server", "workers"), 2.5),
    (("server", "address"), "localhost"),
    (("server", "request_timeout"), "5 parsecs"),
    (("server", "request_timeout"), 5),
    (("server", "request_timeout"), "-1s"),
    (("server", "request_timeout"), "1.5ms"),
    (("server", "max_body"), "1MB"),
    (("server", "cors_origins"), ["https://a.example/x"]),
    (("server", "cors_origins"), "*"),
    (("server", "trusted_proxies"), ["10.0.0.1"]),
    (("admin", "token_file"), ""),
    (("cache", "shared"), "redis"),
    (("log", "level"), "loud"),
    (("log", "parameters"), True),
    (("api",), None),
    ((), []),
]


def changed(path, value):
    config = copy.deepcopy(PLAIN)
    if not path:
        return value
    at = config
    for key in path[:-1]:
        at = at.setdefault(key, {})
    at[path[-1]] = value
    return config


def check(folder, config):
    with open(os.path.join(folder, "weir.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    return subprocess.run([WEIR, "check"], cwd=folder, capture_output=True, text=True, timeout=30, check=False)


def keys_without_words(schema, path="weir.json"):
    for key, inside in schema.get("properties", {}).items():
        if "description" not in inside:
            yield "%s.%s" % (path, key)
        yield from keys_without_words(inside, "%s.%s" % (path, key))
    for inside in schema.get("patternProperties", {}).values():
        yield from keys_without_words(inside, path + ".*")


def main():
    with open(os.path.join(SOURCE, "api", "weir.schema.json"), encoding="utf-8") as file:
        schema = json.load(file)
    with open(os.path.join(SOURCE, "api", "weir.json"), encoding="utf-8") as file:
        demo = json.load(file)
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    problems = ["no description: " + key for key in keys_without_words(schema)]
    problems += ["api/weir.json: " + error.message for error in validator.iter_errors(demo)]
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "api"))
        with open(os.path.join(folder, "api", "a.sql"), "w", encoding="utf-8") as file:
            file.write("-- GET /a\nSELECT 1 AS a\n")
        for wanted, rows in ((True, GOOD), (False, WRONG)):
            for path, value in rows:
                config = changed(path, value)
                ran = check(folder, config)
                if validator.is_valid(config) != wanted:
                    problems.append("the schema %s %s" % ("refuses" if wanted else "takes", json.dumps(config)))
                if ran.returncode != (0 if wanted else 1):
                    problems.append("weir check exits %d for %s: %s%s"
                                    % (ran.returncode, json.dumps(config), ran.stdout, ran.stderr))
    print("[figure] configs on which schema and weir check agree: %d, %d of them wrong; problems: %d"
          % (len(GOOD) + len(WRONG), len(WRONG), len(problems)))
    for problem in problems:
        print(problem)
    return 1 if problems else 0


sys.exit(main())
