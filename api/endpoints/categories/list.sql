-- GET /categories
-- All categories, with how many products each has on sale.
-- @cache max-age=1m stale-while-revalidate=10m stale-if-error=24h
SELECT c.slug, c.name, count(p.id) AS products
FROM categories AS c
LEFT JOIN products AS p ON p.category_id = c.id AND NOT p.discontinued
GROUP BY c.id
ORDER BY c.name
