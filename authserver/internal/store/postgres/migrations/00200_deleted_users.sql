-- Deleted accounts. The row stays: audit events, grants, tokens and applications name its id. It has no name, no address and no password,
-- and is disabled, so that programs older than this file refuse it too.

-- +goose Up
alter table account.users add column deleted_at timestamptz;
alter table account.users add constraint users_deleted_are_empty
  check (deleted_at is null or (disabled_at is not null and password_hash is null and email = id || '@deleted.invalid'));

-- +goose Down
select 1 / 0; -- forward only
