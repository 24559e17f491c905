-- +goose NO TRANSACTION
-- The key of a webhook endpoint contains its workspace (migration 304).

-- +goose Up
drop index concurrently if exists account.webhooks_by_workspace_id;
create unique index concurrently webhooks_by_workspace_id on account.webhooks (tenant_id, id);

-- +goose Down
select 1 / 0; -- forward only
