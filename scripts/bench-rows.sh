# bench-rows.sh - 1,000 rows of int, text, timestamptz, numeric and bool, written by weir, and the same
# query as json_agg through the same weir take turns. To be sourced by scripts/bench.
# SPDX-License-Identifier: MIT
# shellcheck shell=bash

ROWS_FLOOR=4 ROWS_CLIENTS=4

sql "$DATABASE_PORT" postgres <<'END'
CREATE TABLE things (id int, name text, at timestamptz, price numeric(10, 2), is_sold bool);
INSERT INTO things
SELECT g, 'thing "' || g || '"', '2026-01-01 00:00+00'::timestamptz + g * interval '61.5 s',
       g * 1.25, g % 3 = 0
FROM generate_series(1, 1000) AS g;
VACUUM ANALYZE things;
GRANT SELECT ON things TO app;
END
cat >"$WORK/api/rows.sql" <<'END'
-- GET /rows
SELECT id, name, at, price, is_sold FROM things
END
cat >"$WORK/api/aggregate.sql" <<'END'
-- GET /aggregate
-- @result value
SELECT json_agg(t) FROM (SELECT id, name, at, price, is_sold FROM things) AS t
END
CLIENTS=$ROWS_CLIENTS weir_start 64MiB /rows

# The same 1,000 rows, but for white space.
curl -fsS --noproxy '*' -o "$WORK/rows.json" "$BASE/rows"
curl -fsS --noproxy '*' -o "$WORK/aggregate.json" "$BASE/aggregate"
SAME=$(
    sql "$DATABASE_PORT" postgres -At <<END
\set rows \`cat '$WORK/rows.json'\`
\set aggregate \`cat '$WORK/aggregate.json'\`
SELECT :'rows'::jsonb = :'aggregate'::jsonb AND jsonb_array_length(:'rows') = 1000;
END
)
[ "$SAME" = t ] || die "the two answers differ"

# rows_slice PATH: sets COST_US (of database CPU an answer) and WEIR_RATE
rows_slice() {
    local before
    wait_idle
    before=$(database_ticks)
    CLIENTS=$ROWS_CLIENTS wrk_slice "$SECONDS_EACH" "$BASE$1"
    [ "$REFUSED" -eq 0 ] || die "not every answer of $1 was a 200"
    COST_US=$(awk -v t=$(($(database_ticks) - before)) -v hz="$HERTZ" -v n="$REQUESTS" \
        'BEGIN { printf "%.0f", t / hz / n * 1e6 }')
}

CLIENTS=$ROWS_CLIENTS warm "$BASE/rows"
CLIENTS=$ROWS_CLIENTS warm "$BASE/aggregate"
: >"$WORK/slices.txt"
for ((slice = 1; slice <= SLICES; slice++)); do
    rows_slice /rows
    rows_us=$COST_US rows_rate=$WEIR_RATE
    rows_slice /aggregate
    awk -v r="$rows_us" -v a="$COST_US" -v rr="$rows_rate" -v ar="$WEIR_RATE" \
        'BEGIN { printf "%.2f %.0f %.0f %.0f %.0f\n", a / r, r, a, rr, ar }' |
        tee -a "$WORK/slices.txt" |
        awk -v s="$slice" '{ printf "slice %d: rows %d us, json_agg %d us of database CPU: %s times\n", s, $2, $3, $1 }'
done
RATIO=$(median 1)

echo
echo "query             1,000 rows of int, text, timestamptz, numeric, bool; $ROWS_CLIENTS callers, keep-alive"
echo "ratio             $RATIO times the answers per database CPU (median of $SLICES slices of $SECONDS_EACH s)"
echo "rows              $(median 4) answers/s, $(median 2) us of database CPU each"
echo "json_agg          $(median 5) answers/s, $(median 3) us of database CPU each"
awk -v r="$RATIO" -v floor="$ROWS_FLOOR" 'BEGIN { exit !(r >= floor) }' || die "the ratio is below $ROWS_FLOOR"
