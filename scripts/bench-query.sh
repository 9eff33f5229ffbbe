# bench-query.sh - weir and pgbench take turns with the same query. To be sourced by scripts/bench.
# SPDX-License-Identifier: MIT
# shellcheck shell=bash

FLOOR=0.5

sql "$DATABASE_PORT" postgres \
    -c 'CREATE TABLE world (id int PRIMARY KEY, "randomNumber" int NOT NULL)' \
    -c 'INSERT INTO world SELECT g, g * 7919 % 10000 FROM generate_series(1, 10000) AS g' \
    -c 'VACUUM ANALYZE world' -c 'GRANT SELECT ON world TO app'

cat >"$WORK/api/world.sql" <<'END'
-- GET /world/{id}
-- @param  id int4 example=4711
-- @result one
SELECT id, "randomNumber" FROM world WHERE id = :id
END
cat >"$WORK/pgbench.sql" <<'END'
\set id 4711
SELECT id, "randomNumber" FROM world WHERE id = :id;
END
weir_start 64MiB /world/4711
URL=$BASE/world/4711

PGBENCH=$(postgres_programs)/pgbench
[ -x "$PGBENCH" ] || PGBENCH=$(command -v pgbench) || die "NOT RUN: pgbench is missing"

pgbench_slice() {
    PGBENCH_RATE=$("$PGBENCH" -h 127.0.0.1 -p "$DATABASE_PORT" -U app -n -M prepared -j 2 \
        -c "$CLIENTS" -T "$1" -f "$WORK/pgbench.sql" postgres 2>/dev/null |
        awk '/^tps = / { print $3 }')
}

warm "$URL"
pgbench_slice 1
: >"$WORK/slices.txt"
for ((slice = 1; slice <= SLICES; slice++)); do
    weir_before=$(weir_ticks) database_before=$(database_ticks)
    wrk_slice "$SECONDS_EACH" "$URL"
    ALL_REFUSED=$((ALL_REFUSED + REFUSED))
    weir_after=$(weir_ticks) database_after=$(database_ticks)
    pgbench_slice "$SECONDS_EACH"
    awk -v w="$WEIR_RATE" -v p="$PGBENCH_RATE" -v n="$REQUESTS" -v hz="$HERTZ" \
        -v wt=$((weir_after - weir_before)) -v dt=$((database_after - database_before)) \
        'BEGIN { printf "%.3f %.0f %.0f %.1f %.1f\n", w / p, w, p, wt / hz / n * 1e6, dt / hz / n * 1e6 }' |
        tee -a "$WORK/slices.txt" |
        awk -v s="$slice" '{ printf "slice %d: weir %d/s, pgbench %d/s, ratio %s\n", s, $2, $3, $1 }'
done
RATIO=$(median 1)

echo
echo "query             one row by primary key, $CLIENTS callers, keep-alive; guards on, log.access \"errors\""
echo "ratio             $RATIO of pgbench -M prepared -c $CLIENTS (median of $SLICES slices of $SECONDS_EACH s)"
echo "weir              $(median 2) requests/s"
echo "pgbench           $(median 3) statements/s"
echo "CPU per request   weir $(median 4) us, database $(median 5) us"
echo "syscalls          $(syscalls_per_request "$URL") per request of weir"
echo "refused           $ALL_REFUSED (there are as many permits as callers)"
[ "$ALL_REFUSED" -eq 0 ] || die "not every answer was a 200: $(cat "$WORK/refused.txt")"
awk -v r="$RATIO" -v floor="$FLOOR" 'BEGIN { exit !(r >= floor) }' || die "the ratio is below $FLOOR"
