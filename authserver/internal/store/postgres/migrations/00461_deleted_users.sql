-- +goose NO TRANSACTION
-- Deleted users, whose usage retention deletes if a process has added to it since.

-- +goose Up
drop index concurrently if exists account.users_by_deletion;
create index concurrently users_by_deletion on account.users (deleted_at) where deleted_at is not null;

-- +goose Down
select 1 / 0; -- forward only
