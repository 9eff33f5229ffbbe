-- GET /products/{id}
-- One product. Old by two seconds at most, and by ten minutes while the database is away: the price
-- that counts is the one that POST /orders reads.
-- @param   id int4 min=1 example=42
-- @result  one
-- @timeout 1s
-- @cache   max-age=2s stale-while-revalidate=10s stale-if-error=10m
SELECT p.id, p.sku, p.name, p.description, c.slug AS category, p.price, p.weight_grams, p.tags,
       p.stock, p.discontinued, p.added_on
FROM products AS p
JOIN categories AS c ON c.id = p.category_id
WHERE p.id = :id
