-- GET /products/{id}/stock
-- How many are on the shelf: a number, nothing else.
-- @param  id int4 min=1 example=42
-- @result value
SELECT stock FROM products WHERE id = :id
