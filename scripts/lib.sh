# lib.sh - what the scripts share: packages, the build, a private PostgreSQL, free ports.
# To be sourced by bash with `set -euo pipefail`. SPDX-License-Identifier: MIT
# shellcheck shell=bash

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
BUILD=$ROOT/build
: "$BUILD" # used by those who source this

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }
die() {
    say "$*"
    exit 1
}

# --- packages ---

is_installed() { dpkg-query -W -f '${db:Status-Status}\n' "$1" 2>/dev/null | grep -qx installed; }

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "needs root or sudo for: $*"
    fi
}

apt_install() {
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -q --no-install-recommends "$@" </dev/null >&2
}

APT_UPDATED=
apt_update_once() {
    [ -z "$APT_UPDATED" ] || return 0
    as_root apt-get update -q </dev/null >&2
    APT_UPDATED=yes
}

# need_packages NAME... installs those that are missing.
need_packages() {
    local missing=() name
    for name in "$@"; do
        is_installed "$name" || missing+=("$name")
    done
    [ "${#missing[@]}" -gt 0 ] || return 0
    command -v apt-get >/dev/null || die "please install: ${missing[*]}"
    say "installing ${missing[*]}"
    apt_update_once
    apt_install "${missing[@]}"
}

has_postgres() { compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null; }

# The server's programs, without the cluster on port 5432 that Debian would make and start: the file
# that says so is put back as it was.
need_postgres() {
    has_postgres && return 0
    need_packages postgresql-common
    local file=/etc/postgresql-common/createcluster.conf kept status=0
    kept=$(mktemp)
    cp "$file" "$kept"
    echo 'create_main_cluster = false' | as_root tee -a "$file" >/dev/null
    say "installing postgresql"
    apt_update_once
    apt_install postgresql || status=$?
    as_root tee "$file" <"$kept" >/dev/null
    rm -f "$kept"
    if [ "$status" -ne 0 ] || ! has_postgres; then
        die "PostgreSQL could not be installed"
    fi
}

need_build_packages() {
    local compiler=()
    command -v "${CC:-cc}" >/dev/null || compiler=(gcc libc6-dev)
    need_packages "${compiler[@]}" cmake ninja-build pkg-config curl procps libmicrohttpd-dev \
        libpq-dev libjansson-dev libuv1-dev libcmocka-dev libcurl4-openssl-dev python3-jsonschema
    need_postgres
}

# --- building ---

# Two at a time, or as many as there are processors and gigabytes.
job_count() {
    local cpus gigabytes
    cpus=$(nproc)
    gigabytes=$(awk '/^MemAvailable/ { print int($2 / 1048576) }' /proc/meminfo)
    [ "$gigabytes" -ge 1 ] || gigabytes=1
    echo $((cpus < gigabytes ? cpus : gigabytes))
}

# build_weir FOLDER TARGET [CMAKE-OPTION...] [-- NINJA-OPTION...]
build_weir() {
    local folder=$1 target=$2 options=()
    shift 2
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    cmake -S "$ROOT" -B "$folder" -G Ninja "${options[@]}" >"$folder.configure.log" 2>&1 || {
        cat "$folder.configure.log" >&2
        die "cmake failed"
    }
    cmake --build "$folder" --target "$target" -j "$(job_count)" "$@"
}

# --- a private PostgreSQL ---

postgres_programs() {
    local newest
    newest=$(compgen -G '/usr/lib/postgresql/*/bin/initdb' | sort -t/ -k5 -n | tail -n 1)
    dirname "$newest"
}

# The server refuses to run as root.
as_server() {
    if [ "$(id -u)" -eq 0 ]; then
        setpriv --reuid=postgres --regid=postgres --clear-groups "$@"
    else
        "$@"
    fi
}

is_port_free() { ! (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# free_port PREFERRED: that one, or any; 0: any
free_port() {
    local port=$1
    while [ "$port" -eq 0 ] || ! is_port_free "$port"; do
        port=$((20000 + RANDOM % 12000))
    done
    echo "$port"
}

# server_folder PATH makes an empty folder that the server's user can use: PATH, or one under /tmp
# when that user may not enter the folders above PATH. Prints it.
server_folder() {
    local folder=$1
    rm -rf "$folder"
    mkdir -p "$folder"
    if [ "$(id -u)" -eq 0 ]; then
        chown postgres: "$folder"
        if ! as_server test -x "$folder"; then
            rmdir "$folder"
            folder=$(mktemp -d /tmp/weir-postgres.XXXXXX)
            chown postgres: "$folder"
        fi
    fi
    echo "$folder"
}

# postgres_start FOLDER PORT: sets POSTGRES_PID; makes the data on the first start. The server dies
# with this script.
postgres_start() {
    local folder=$1 port=$2 programs log
    programs=$(postgres_programs)
    log=$BUILD/$(basename "$0")-postgres.log
    if [ ! -e "$folder/data/PG_VERSION" ]; then
        (cd "$folder" && as_server "$programs/initdb" -D "$folder/data" -U postgres -A trust \
            --no-sync --encoding=UTF8 --locale=C.UTF-8 >"$log" 2>&1) || {
            cat "$log" >&2
            die "initdb failed"
        }
    fi
    (cd "$folder" && exec_server "$programs/postgres" -D "$folder/data" -p "$port" \
        -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off \
        -c max_connections=300 -c timezone=UTC) >"$log" 2>&1 </dev/null &
    POSTGRES_PID=$!
    postgres_wait "$port" "$log"
}

# As as_server, but becomes the command.
exec_server() {
    local user=()
    [ "$(id -u)" -ne 0 ] || user=(--reuid=postgres --regid=postgres --clear-groups)
    exec setpriv "${user[@]}" --pdeathsig QUIT "$@"
}

postgres_wait() {
    local port=$1 log=$2 i
    for ((i = 0; i < 300; i++)); do
        if sql "$port" postgres -c 'SELECT 1' >/dev/null 2>&1; then
            return 0
        fi
        kill -0 "$POSTGRES_PID" 2>/dev/null || break
        sleep 0.1
    done
    cat "$log" >&2
    die "PostgreSQL did not start"
}

# sql PORT DATABASE PSQL-OPTION...: as superuser
sql() {
    local port=$1 database=$2
    shift 2
    PGOPTIONS='-c client_min_messages=warning' "$(postgres_programs)/psql" -X -q -v ON_ERROR_STOP=1 \
        -h 127.0.0.1 -p "$port" -U postgres -d "$database" "$@"
}

# stop PID SIGNAL: and waits for its end; quiet when it is gone already.
stop() {
    [ -n "${1:-}" ] || return 0
    kill "-$2" "$1" 2>/dev/null || return 0
    wait "$1" 2>/dev/null || true
}

# --- weir ---

# wait_for_url URL PID LOG
wait_for_url() {
    local i
    for ((i = 0; i < 200; i++)); do
        if curl -fsS -o /dev/null --noproxy '*' -m 2 "$1" 2>/dev/null; then
            return 0
        fi
        kill -0 "$2" 2>/dev/null || break
        sleep 0.1
    done
    cat "$3" >&2
    die "weir does not answer $1"
}
