-- +goose NO TRANSACTION
-- The connection log of a workspace, latest first.

-- +goose Up
drop index concurrently if exists account.grants_by_creation;
create index concurrently grants_by_creation on account.grants (tenant_id, created_at desc, id desc);

-- +goose Down
select 1 / 0; -- forward only
