-- +goose NO TRANSACTION
-- The key of an event contains its workspace (migration 293).

-- +goose Up
drop index concurrently if exists account.events_by_workspace;
create unique index concurrently events_by_workspace on account.events (tenant_id, id);

-- +goose Down
select 1 / 0; -- forward only
