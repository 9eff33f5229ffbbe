-- DELETE /orders/{id}
-- Takes an open order back and puts its goods on the shelf again. {"rows": 0} when there is no
-- such open order: asking twice does no harm.
-- @param  id int4 min=1 example=2998
-- @result exec
-- @purges GET /customers/{id}
WITH gone AS (
    DELETE FROM order_lines AS l
    USING orders AS o
    WHERE o.id = :id AND o.status = 'open' AND l.order_id = o.id
    RETURNING l.product_id, l.quantity
), back AS (
    UPDATE products AS p
    SET stock = p.stock + g.quantity
    FROM gone AS g
    WHERE p.id = g.product_id
)
DELETE FROM orders WHERE id = :id AND status = 'open'
