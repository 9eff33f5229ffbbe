-- GET /customers/{id}/orders
-- A customer's orders, newest first. Not stored: who has just ordered must see it here.
-- @param id     int4 min=1 example=7
-- @param status text optional enum=open,paid,shipped,cancelled example=shipped
-- @param limit  int4 default=20 min=1 max=100
SELECT o.id, o.status, o.placed_at, sum(l.quantity * l.unit_price) AS total
FROM orders AS o
JOIN order_lines AS l ON l.order_id = o.id
WHERE o.customer_id = :id
  AND (:status IS NULL OR o.status::text = :status)
GROUP BY o.id
ORDER BY o.placed_at DESC
LIMIT :limit
