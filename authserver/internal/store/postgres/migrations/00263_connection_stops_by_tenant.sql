-- +goose NO TRANSACTION
-- The connection log of a workspace, latest first.

-- +goose Up
drop index concurrently if exists account.connection_stops_by_tenant;
create index concurrently connection_stops_by_tenant on account.connection_stops (tenant_id, at desc, id desc);

-- +goose Down
select 1 / 0; -- forward only
