-- +goose NO TRANSACTION
-- The key of a stopped attempt contains its workspace (migration 237).

-- +goose Up
drop index concurrently if exists account.connection_stops_by_workspace;
create unique index concurrently connection_stops_by_workspace on account.connection_stops (tenant_id, id);

-- +goose Down
select 1 / 0; -- forward only
