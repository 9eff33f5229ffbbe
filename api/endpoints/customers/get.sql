-- GET /customers/{id}
-- One customer, with what the orders so far come to.
-- @param  id int4 min=1 example=7
-- @result one
-- @cache  max-age=10s stale-if-error=10m private
SELECT c.id, c.name, c.city, c.joined_at,
       count(DISTINCT o.id) AS orders,
       coalesce(sum(l.quantity * l.unit_price), 0) AS spent
FROM customers AS c
LEFT JOIN orders AS o ON o.customer_id = c.id AND o.status <> 'cancelled'
LEFT JOIN order_lines AS l ON l.order_id = o.id
WHERE c.id = :id
GROUP BY c.id
