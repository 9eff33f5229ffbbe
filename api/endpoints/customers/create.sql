-- POST /customers
-- A new customer. An e-mail address can be used once: again is a 409 that names `email_is_taken`.
-- @param  email  text maxlen=200 pattern="[^@ ]+@[^@ ]+" example=new.customer@example.org
-- @param  name   text minlen=1 maxlen=100 example="Nell Newcomer"
-- @param  city   text minlen=1 maxlen=100 example=Bergen
-- @result one
-- @status 201
INSERT INTO customers (email, name, city)
VALUES (lower(:email), :name, :city)
RETURNING id, email, name, city, joined_at
