-- GET /search
-- Products by words of their name and description, best match first.
-- Understands "quoted phrases", or, and -without.
-- @param q     text minlen=2 maxlen=100 example="warm backpack"
-- @param limit int4 default=10 min=1 max=50
-- @limit 4
-- @cache max-age=30s stale-while-revalidate=1m stale-if-error=1h
-- @fallback []
SELECT p.id, p.name, p.description, p.price,
       ts_rank(to_tsvector('english', p.name || ' ' || p.description), query) AS rank
FROM products AS p, websearch_to_tsquery('english', :q) AS query
WHERE to_tsvector('english', p.name || ' ' || p.description) @@ query
ORDER BY rank DESC, p.id
LIMIT :limit
