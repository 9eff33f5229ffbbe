-- PUT /products/{id}
-- Replaces what is said about a product. Its stock and history stay.
-- @param  id           int4 min=1 example=42
-- @param  name         text minlen=3 maxlen=100 example="Granite Ridge backpack 40"
-- @param  description  text maxlen=2000 example="Carries well."
-- @param  price        numeric min=0.01 max=99999.99 example=129.90
-- @param  weight_grams int4 min=1 max=100000 example=1450
-- @param  tags         text[] default={} example=light
-- @result one
-- @purges GET /products/{id}
-- @purges GET /products
-- @purges GET /search
-- @purges GET /reports/bestsellers
UPDATE products
SET name = :name, description = :description, price = :price, weight_grams = :weight_grams, tags = :tags
WHERE id = :id
RETURNING id, sku, name, description, price, weight_grams, tags, stock
