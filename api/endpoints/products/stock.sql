-- GET /products/{id}/stock
-- How many are on the shelf: a number, nothing else. Whoever asks wants to know it now, so nothing is
-- stored: it is the live answer or a 503.
-- @param  id int4 min=1 example=42
-- @result value
SELECT stock FROM products WHERE id = :id
