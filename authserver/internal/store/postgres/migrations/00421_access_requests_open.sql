-- +goose NO TRANSACTION
-- The open requests of a workspace, the latest first.

-- +goose Up
drop index concurrently if exists account.access_requests_open;
create index concurrently access_requests_open on account.access_requests (tenant_id, asked_at desc)
  where answered_at is null or answered_at < asked_at;

-- +goose Down
select 1 / 0; -- forward only
