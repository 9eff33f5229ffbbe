-- GET /products/{id}
-- One product.
-- @param   id int4 min=1 example=42
-- @result  one
-- @timeout 1s
SELECT p.id, p.sku, p.name, p.description, c.slug AS category, p.price, p.weight_grams, p.tags,
       p.stock, p.discontinued, p.added_on
FROM products AS p
JOIN categories AS c ON c.id = p.category_id
WHERE p.id = :id
