-- A try that was answered with 503 is taken back: in Postgres at once, and in Redis before the grant's next decision, which learns the
-- nonce from here (grants.md, G10). Grants of which nothing was ever given up take no more room.

-- +goose Up
alter table account.grants add column given_up text[];

-- +goose Down
select 1 / 0; -- forward only
