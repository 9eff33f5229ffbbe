-- What docker-compose.yml runs before the API starts, by psql: an empty database becomes the shop, one
-- that is the shop stays as it is. All of it or nothing, as often as you like.
\set ON_ERROR_STOP on
\getenv password SHOP_PASSWORD
BEGIN;
SELECT to_regclass('products') IS NULL AS is_empty \gset
\if :is_empty
\ir schema.sql
\o /dev/null
\ir data.sql
\o
CREATE ROLE shop LOGIN;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO shop;
\endif
ALTER ROLE shop PASSWORD :'password';
COMMIT;
