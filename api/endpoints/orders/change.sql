-- PATCH /orders/{id}
-- Moves an order on: open to paid, paid to shipped. Any other step finds no row: 404.
-- @param  id     int4 min=1 example=2999
-- @param  status text enum=paid,shipped example=paid
-- @result one
UPDATE orders
SET status = :status::order_status
WHERE id = :id
  AND status = CASE :status WHEN 'paid' THEN 'open'::order_status ELSE 'paid'::order_status END
RETURNING id, status
