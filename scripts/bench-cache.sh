# bench-cache.sh - hits, memory and scans of the cache. To be sourced by scripts/bench.
# SPDX-License-Identifier: MIT
# shellcheck shell=bash

SLICES=12 SECONDS_EACH=2 # many, short: whatever else the machine does hits few of them
HIT_FLOOR=0.7 WARM_KEYS=300
MEMORY_KEYS=1000000 MEMORY_MIB=32 MEMORY_PERCENT=110
HOT_KEYS=100 SCAN_KEYS=100000 SCAN_CACHE=1MiB SCAN_FLOOR=0.8
MISSED=''

route_write() { cat >"$WORK/api/$1.sql"; }
route_write row <<'END'
-- GET /row/{id}
-- @param  id int4
-- @result one
SELECT :id AS id
END
for route in hit hot; do
    route_write "$route" <<END
-- GET /$route/{id}
-- @param  id int4
-- @result one
-- @cache  max-age=1h
SELECT :id AS id, :id * 7919 % 10000 AS number
END
done
# Of many sizes, so that what goes seldom leaves a hole that fits what comes.
route_write cold <<'END'
-- GET /cold/{id}
-- @param  id int4
-- @result one
-- @cache  max-age=1h
SELECT :id AS id, repeat('x', (:id::int8 * 7919 % 400)::int) AS text
END

# Two arguments, a path and a count: asks for it with ID from 1 to the count, in turn. The requests are
# made beforehand, so that wrk does the same work whatever they ask.
cat >"$WORK/turns.lua" <<'END'
local requests, turn = {}, 0
function init(args)
    for i = 1, tonumber(args[2]) do
        requests[i] = wrk.format("GET", (args[1]:gsub("ID", tostring(i))))
    end
end
function request()
    turn = turn % #requests + 1
    return requests[turn]
end
END
# Two arguments, every and hot: keys that nobody asked for before, but each every-th request (0: none)
# is for one of so many hot keys, in turn.
cat >"$WORK/keys.lua" <<'END'
local threads = 0
function setup(thread)
    thread:set("next_key", threads)
    threads = threads + 1
end
local every, hot_keys, asked
function init(args)
    every, hot_keys, asked = tonumber(args[1]), tonumber(args[2]), 0
end
function request()
    asked = asked + 1
    if every > 0 and asked % every == 0 then
        return wrk.format("GET", "/hot/" .. (asked / every % hot_keys + 1))
    end
    next_key = next_key + 2 -- there are two threads
    return wrk.format("GET", "/cold/" .. next_key)
end
END

# --- what weir says ---

# answers ROUTE [SERVED]
answers() { metric_sum "weir_answers_total{route=\"GET /$1/{id}\"" "served=\"${2:-}"; }
# missed WORDS: is said at the end; the other figures are measured all the same.
missed() { MISSED="${MISSED:+$MISSED; }$*"; }
at_least() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a >= b) }'; }

# load_until KEYS COMMAND WRK-ARGUMENT...: load until so many cold keys were answered; COMMAND is run
# twice a second meanwhile. What is refused is no key.
load_until() {
    local keys=$1 watch=$2
    shift 2
    wait_idle
    wrk -t 2 -c "$CLIENTS" -d 900s --timeout 30s "$@" >"$WORK/wrk.txt" &
    LOAD_PID=$!
    while [ "$(answers cold live)" -lt "$keys" ]; do
        kill -0 "$LOAD_PID" 2>/dev/null || die "the load ended too early"
        "$watch"
        sleep 0.5
    done
    "$watch"
    stop "$LOAD_PID" INT
    LOAD_PID=''
    wrk_read
}

# --- hits ---

# turns TEMPLATE COUNT: arguments of wrk, into TURNS
turns() { TURNS=(-s "$WORK/turns.lua" "$BASE" -- "$1" "$2"); }

# side_slice hit|live: sets WEIR_RATE and COST_US
side_slice() {
    local before
    before=$(weir_ticks)
    turns "${PATHS[$1]}" "$WARM_KEYS"
    wrk_slice "$SECONDS_EACH" "${TURNS[@]}"
    ALL_REFUSED=$((ALL_REFUSED + REFUSED))
    COST_US=$(awk -v t=$(($(weir_ticks) - before)) -v hz="$HERTZ" -v n="$REQUESTS" \
        'BEGIN { printf "%.1f", t / hz / n * 1e6 }')
}

# Both, one after the other, in an order that is drawn.
pair_slice() {
    local side sides=(hit live)
    local -A rates costs
    [ $((RANDOM % 2)) -eq 0 ] || sides=(live hit)
    for side in "${sides[@]}"; do
        side_slice "$side"
        rates[$side]=$WEIR_RATE costs[$side]=$COST_US
    done
    awk -v h="${rates[hit]}" -v l="${rates[live]}" -v hc="${costs[hit]}" -v lc="${costs[live]}" \
        'BEGIN { printf "%.3f %.0f %.0f %s %s\n", h / l, h, l, hc, lc }' |
        tee -a "$WORK/slices.txt" |
        awk -v s="$1" '{ printf "pair %d: hits %d/s, live %d/s, ratio %s\n", s, $2, $3, $1 }'
}

measure_hits() {
    local side pair misses
    local -A calls
    declare -gA PATHS=([hit]=/hit/ID [live]=/health/live)
    weir_start 64MiB /hit/1
    for side in hit live; do # warm: all keys are stored
        turns "${PATHS[$side]}" "$WARM_KEYS"
        warm "${TURNS[@]}"
    done
    misses=$(answers hit live)
    : >"$WORK/slices.txt"
    for ((pair = 1; pair <= SLICES; pair++)); do
        pair_slice "$pair"
    done
    [ "$(answers hit live)" -eq "$misses" ] || missed "some hits were none"
    [ "$ALL_REFUSED" -eq 0 ] || missed "not every answer was a 200: $(cat "$WORK/refused.txt")"
    at_least "$(median 1)" "$HIT_FLOOR" || missed "hits are below $HIT_FLOOR of /health/live"
    for side in hit live; do
        turns "${PATHS[$side]}" "$WARM_KEYS"
        calls[$side]=$(syscalls_per_request "${TURNS[@]}")
    done
    echo
    echo "hits              $WARM_KEYS keys, $CLIENTS callers, keep-alive; log.access \"errors\""
    echo "ratio             $(median 1) of /health/live (median of $SLICES pairs of slices of $SECONDS_EACH s)"
    echo "hit               $(median 2) requests/s"
    echo "/health/live      $(median 3) requests/s"
    echo "CPU per request   hit $(median 4) us, /health/live $(median 5) us"
    echo "syscalls          hit ${calls[hit]}, /health/live ${calls[live]} per request"
    echo "refused           $ALL_REFUSED"
}

# --- memory ---

MOST_KIB=0 MOST_BYTES=0 SAMPLES=0
memory_sample() {
    local kib bytes
    kib=$(awk '/^VmRSS/ { print $2 }' "/proc/$WEIR_PID/status")
    bytes=$(metric_sum 'weir_cache_bytes ')
    MOST_KIB=$((kib > MOST_KIB ? kib : MOST_KIB))
    MOST_BYTES=$((bytes > MOST_BYTES ? bytes : MOST_BYTES))
    SAMPLES=$((SAMPLES + 1))
}

measure_memory() {
    local before kib
    weir_start "${MEMORY_MIB}MiB" /row/1
    turns /row/ID 1000
    warm "${TURNS[@]}" # sessions, arenas, connections
    wrk_slice 3 "${TURNS[@]}"
    memory_sample
    before=$MOST_KIB SAMPLES=0
    load_until "$MEMORY_KEYS" memory_sample -s "$WORK/keys.lua" "$BASE" -- 0 1
    kib=$((MOST_KIB - before))
    [ "$(answers cold stored)" -eq 0 ] || missed "keys came twice"
    [ "$MOST_BYTES" -le $((MEMORY_MIB << 20)) ] || missed "weir_cache_bytes passed max_bytes"
    [ "$MOST_BYTES" -ge $((MEMORY_MIB << 19)) ] || missed "the cache was never full: that measures nothing"
    [ "$kib" -le $(((MEMORY_MIB << 10) * MEMORY_PERCENT / 100)) ] ||
        missed "memory grew beyond $MEMORY_PERCENT % of max_bytes"
    echo "memory            grew by $((kib * 100 / (MEMORY_MIB << 10))) % of max_bytes ($MEMORY_MIB MiB) while" \
        "$(answers cold live) keys came; weir_cache_bytes at most $((MOST_BYTES * 100 / (MEMORY_MIB << 20))) % ($SAMPLES looks)"
}

# --- a scan ---

# hot_rate COMMAND...: sets HOT_RATE, of the hot set's answers the part that was stored, meanwhile
hot_rate() {
    local stored all
    stored=$(answers hot stored) all=$(answers hot)
    "$@"
    HOT_RATE=$(awk -v part=$(($(answers hot stored) - stored)) -v all=$(($(answers hot) - all)) \
        'BEGIN { printf "%.3f", part / all }')
}

ask_hot() {
    local key
    for ((key = 1; key <= HOT_KEYS; key++)); do
        printf 'url = %s/hot/%d\noutput = /dev/null\n' "$BASE" "$key"
    done | curl -fsS --noproxy '*' -K -
}

measure_scan() {
    local before during after rate
    weir_start "$SCAN_CACHE" /row/1
    turns /row/ID 1000
    warm "${TURNS[@]}"
    turns /hot/ID "$HOT_KEYS"
    warm "${TURNS[@]}"
    hot_rate wrk_slice 1 "${TURNS[@]}"
    before=$HOT_RATE
    # Each hot key is asked for twice in 20,000 requests: more than this cache holds.
    hot_rate load_until "$SCAN_KEYS" true -s "$WORK/keys.lua" "$BASE" -- 100 "$HOT_KEYS"
    during=$HOT_RATE
    hot_rate ask_hot
    after=$HOT_RATE
    at_least "$before" 0.99 || missed "the hot set was not hot"
    for rate in "$during" "$after"; do
        at_least "$rate" "$(awk -v b="$before" -v f="$SCAN_FLOOR" 'BEGIN { print b * f }')" ||
            missed "the scan left a hit rate of $rate: it took more than 20 % off"
    done
    echo "scan              hit rate of $HOT_KEYS hot keys: $before, $during while $(answers cold live) cold ones passed," \
        "$after after it (the cache held $(metric_sum 'weir_cache_entries '))"
}

measure_hits
measure_memory
measure_scan
[ -z "$MISSED" ] || die "$MISSED"
