-- +goose NO TRANSACTION
-- The key of a delivery contains its workspace (migration 304). webhook_deliveries_by_id is for the previous release, whose inserts
-- name it as the target of their conflicts. `authserver migrate --finish` drops it.

-- +goose Up
drop index concurrently if exists account.webhook_deliveries_by_workspace;
create unique index concurrently webhook_deliveries_by_workspace on account.webhook_deliveries (tenant_id, id);
drop index concurrently if exists account.webhook_deliveries_by_id;
create unique index concurrently webhook_deliveries_by_id on account.webhook_deliveries (id);

-- +goose Down
select 1 / 0; -- forward only
