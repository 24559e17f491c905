-- +goose NO TRANSACTION
-- Retention finds these records by their time. Without the index, each of its statements, one for 500 records, reads the whole table.

-- +goose Up
drop index concurrently if exists account.oauth_clients_deleted;
create index concurrently oauth_clients_deleted on account.oauth_clients (deleted_at) where deleted_at is not null;

-- +goose Down
select 1 / 0; -- forward only
