-- GET /products
-- Products page by page: pass the last id you saw as `after` to get the next page.
-- @param category  text optional maxlen=40 example=tents
-- @param tag       text[] optional example=winter
-- @param max_price numeric optional min=0 example=150
-- @param in_stock  bool default=false
-- @param after     int4 default=0 min=0
-- @param limit     int4 default=20 min=1 max=100 example=5
-- @cache max-age=5s stale-while-revalidate=30s stale-if-error=10m
SELECT p.id, p.sku, p.name, c.slug AS category, p.price, p.tags, p.stock
FROM products AS p
JOIN categories AS c ON c.id = p.category_id
WHERE p.id > :after
  AND NOT p.discontinued
  AND (:category IS NULL OR c.slug = :category)
  AND (:tag IS NULL OR p.tags @> :tag)
  AND (:max_price IS NULL OR p.price <= :max_price)
  AND (NOT :in_stock OR p.stock > 0)
ORDER BY p.id
LIMIT :limit
