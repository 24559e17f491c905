-- +goose NO TRANSACTION
-- The key of a grant contains its workspace (migration 232).

-- +goose Up
drop index concurrently if exists account.grants_by_workspace;
create unique index concurrently grants_by_workspace on account.grants (tenant_id, id);

-- +goose Down
select 1 / 0; -- forward only
