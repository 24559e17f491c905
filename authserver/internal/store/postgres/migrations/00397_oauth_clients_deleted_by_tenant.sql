-- +goose NO TRANSACTION
-- The list of connectors shows those of a workspace that were deleted lately, and searches name them.

-- +goose Up
drop index concurrently if exists account.oauth_clients_deleted_by_tenant;
create index concurrently oauth_clients_deleted_by_tenant on account.oauth_clients (tenant_id) where deleted_at is not null;

-- +goose Down
select 1 / 0; -- forward only
