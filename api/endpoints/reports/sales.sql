-- GET /reports/sales
-- Sales by month and category. `until` is not included.
-- @param   from  date default=2025-01-01 example=2025-03-01
-- @param   until date default=2026-01-01 example=2025-06-01
-- @timeout 2s
-- @limit   2
-- @cache   max-age=10m stale-while-revalidate=1h stale-if-error=24h
SELECT to_char(date_trunc('month', o.placed_at AT TIME ZONE 'UTC'), 'YYYY-MM') AS month,
       c.slug AS category,
       sum(l.quantity) AS items,
       sum(l.quantity * l.unit_price) AS revenue
FROM orders AS o
JOIN order_lines AS l ON l.order_id = o.id
JOIN products AS p ON p.id = l.product_id
JOIN categories AS c ON c.id = p.category_id
WHERE o.status <> 'cancelled'
  AND o.placed_at >= :from
  AND o.placed_at < :until
GROUP BY 1, 2
ORDER BY 1, 2
