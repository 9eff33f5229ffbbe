-- POST /orders
-- Places an order: one statement takes the goods from the shelf, writes the order and its lines, or
-- does none of it. products[i] is ordered quantities[i] times. More than there is on the shelf is a
-- 422 that names `stock_is_not_negative`, an unknown customer a 409 that names `customer_exists`.
-- It leaves stored products alone: their `stock` is soon fetched anew, and a purge at every order
-- would leave nothing to answer with on the day the database is away.
-- @param  customer_id int4 min=1 example=7
-- @param  products    int4[] example=42
-- @param  quantities  int4[] example=2
-- @param  note        text optional maxlen=500
-- @result one
-- @status 201
-- @purges GET /customers/{id}
WITH wanted AS (
    SELECT w.product_id, sum(w.quantity)::int AS quantity
    FROM unnest(:products, :quantities) AS w (product_id, quantity)
    GROUP BY w.product_id
), taken AS (
    UPDATE products AS p
    SET stock = p.stock - w.quantity
    FROM wanted AS w
    WHERE p.id = w.product_id AND NOT p.discontinued
    RETURNING p.id, p.price
), placed AS (
    INSERT INTO orders (customer_id, note)
    VALUES (:customer_id, :note)
    RETURNING id, status, placed_at
), lines AS (
    INSERT INTO order_lines (order_id, product_id, quantity, unit_price)
    SELECT placed.id, w.product_id, w.quantity, t.price
    FROM placed
    CROSS JOIN wanted AS w
    LEFT JOIN taken AS t ON t.id = w.product_id
    RETURNING quantity, unit_price
)
SELECT placed.id, placed.status, placed.placed_at,
       (SELECT sum(quantity * unit_price) FROM lines) AS total
FROM placed
