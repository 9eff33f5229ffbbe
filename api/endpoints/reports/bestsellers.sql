-- GET /reports/bestsellers
-- What sold most, over all time.
-- @param limit int4 default=10 min=1 max=50 example=3
-- @limit 2
-- @cache max-age=1m stale-while-revalidate=10m stale-if-error=24h
-- @fallback []
SELECT p.id, p.name, sum(l.quantity) AS sold, sum(l.quantity * l.unit_price) AS revenue
FROM order_lines AS l
JOIN orders AS o ON o.id = l.order_id AND o.status <> 'cancelled'
JOIN products AS p ON p.id = l.product_id
GROUP BY p.id
ORDER BY sold DESC, p.id
LIMIT :limit
