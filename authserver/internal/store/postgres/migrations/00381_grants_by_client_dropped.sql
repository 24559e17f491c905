-- +goose NO TRANSACTION
-- grants_by_application (migration 380) replaces this index.

-- +goose Up
drop index concurrently if exists account.grants_by_client;

-- +goose Down
select 1 / 0; -- forward only
