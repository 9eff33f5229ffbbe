-- PATCH /products/{id}
-- Changes the price, restocks, or takes a product off sale; what is left out stays.
-- @param  id           int4 min=1 example=42
-- @param  price        numeric optional min=0.01 max=99999.99 example=99.90
-- @param  restock      int4 default=0 min=-1000 max=1000 example=25
-- @param  discontinued bool optional
-- @result one
-- @purges GET /products/{id}
-- @purges GET /products
-- @purges GET /search
-- @purges GET /categories
UPDATE products
SET price = coalesce(:price, price),
    stock = stock + :restock,
    discontinued = coalesce(:discontinued, discontinued)
WHERE id = :id
RETURNING id, sku, name, price, stock, discontinued
