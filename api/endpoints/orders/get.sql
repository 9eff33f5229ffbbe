-- GET /orders/{id}
-- One order with its lines. Not stored: what is paid or shipped is known now, or not at all.
-- @param  id int4 min=1 example=11
-- @result one
SELECT o.id, o.customer_id, o.status, o.note, o.placed_at,
       sum(l.quantity * l.unit_price) AS total,
       jsonb_agg(jsonb_build_object('product', p.id, 'name', p.name, 'quantity', l.quantity,
                                    'unit_price', l.unit_price) ORDER BY p.id) AS lines
FROM orders AS o
JOIN order_lines AS l ON l.order_id = o.id
JOIN products AS p ON p.id = l.product_id
WHERE o.id = :id
GROUP BY o.id
