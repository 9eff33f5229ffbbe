-- GET /play/slow
-- Takes as long as you say. Ask for more than 2 seconds (this demo's query_timeout) five times and
-- the breaker opens; ask nine times at once and the ninth is refused, as there are eight permits.
-- @param   seconds float8 default=1 min=0 max=10 example=0.1
-- @result  one
SELECT :seconds AS slept FROM pg_sleep(:seconds)
