-- The same rows on every machine: everything follows from the row's number.

INSERT INTO categories (id, slug, name) VALUES
    (1, 'tents',     'Tents and tarps'),
    (2, 'sleeping',  'Sleeping bags and mats'),
    (3, 'packs',     'Backpacks'),
    (4, 'cooking',   'Stoves and cookware'),
    (5, 'clothing',  'Clothing'),
    (6, 'footwear',  'Footwear'),
    (7, 'climbing',  'Climbing'),
    (8, 'lights',    'Lamps and power');

INSERT INTO products (id, category_id, sku, name, description, price, weight_grams, tags, stock, discontinued, added_on)
SELECT
    g,
    c.id,
    upper(left(c.slug, 3)) || '-' || lpad(g::text, 4, '0'),
    (ARRAY['Alder', 'Birch', 'Cedar', 'Dune', 'Ember', 'Fjord', 'Granite', 'Harbour', 'Isle', 'Juniper'])[1 + g % 10]
        || ' ' || (ARRAY['Trail', 'Ridge', 'Summit', 'Valley', 'River'])[1 + g / 10 % 5]
        || ' ' || (ARRAY['tent', 'sleeping bag', 'backpack', 'stove', 'jacket', 'boot', 'harness', 'lantern'])[c.id]
        || ' ' || (1 + g / 50),
    'A ' || (ARRAY['light', 'sturdy', 'warm', 'compact', 'waterproof', 'simple'])[1 + g % 6]
        || ' companion for ' || (ARRAY['a weekend', 'the high season', 'winter nights', 'long walks'])[1 + g % 4] || '.',
    round((9.95 + (g * 7919 % 30000) / 100.0)::numeric, 2),
    80 + g * 104729 % 4000,
    ARRAY[(ARRAY['light', 'sturdy', 'warm', 'compact', 'waterproof', 'simple'])[1 + g % 6],
          (ARRAY['summer', 'winter', 'all-year'])[1 + g % 3]],
    200 + g * 31 % 400,
    g % 41 = 0,
    DATE '2024-01-01' + g * 13 % 700
FROM generate_series(1, 400) AS g
JOIN categories AS c ON c.id = 1 + g % 8;

INSERT INTO customers (id, email, name, city, joined_at)
SELECT
    g,
    'customer' || g || '@example.org',
    (ARRAY['Ada', 'Boris', 'Chiara', 'Dev', 'Elif', 'Femi', 'Greta', 'Hugo', 'Inés', 'Jun'])[1 + g % 10]
        || ' ' || (ARRAY['Andersen', 'Brzęk', 'Costa', 'Dubois', 'Engström', 'Fischer', 'García'])[1 + g / 10 % 7],
    (ARRAY['Bergen', 'Chamonix', 'Innsbruck', 'Kraków', 'Ljubljana', 'Zürich'])[1 + g % 6],
    TIMESTAMPTZ '2024-01-01 08:00+00' + g * INTERVAL '17 hours'
FROM generate_series(1, 500) AS g;

INSERT INTO orders (id, customer_id, status, note, placed_at)
SELECT
    g,
    1 + g * 37 % 500,
    (CASE WHEN g % 19 = 0 THEN 'cancelled' WHEN g > 2900 THEN 'open' WHEN g > 2700 THEN 'paid' ELSE 'shipped' END)::order_status,
    CASE WHEN g % 25 = 0 THEN 'Please ring twice.' END,
    TIMESTAMPTZ '2025-01-01 09:00+00' + g * INTERVAL '171 minutes'
FROM generate_series(1, 3000) AS g;

INSERT INTO order_lines (order_id, product_id, quantity, unit_price)
SELECT o.id, p.id, 1 + (o.id + n) % 3, p.price
FROM orders AS o
CROSS JOIN generate_series(0, 3) AS n
JOIN products AS p ON p.id = 1 + (o.id * 53 + n * 101) % 400
WHERE n <= o.id % 4;

SELECT setval(pg_get_serial_sequence('products', 'id'), max(id)) FROM products;
SELECT setval(pg_get_serial_sequence('customers', 'id'), max(id)) FROM customers;
SELECT setval(pg_get_serial_sequence('orders', 'id'), max(id)) FROM orders;

ANALYZE categories, products, customers, orders, order_lines;
