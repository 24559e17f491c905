-- +goose NO TRANSACTION
-- The key of an invitation contains its workspace (migration 295).

-- +goose Up
drop index concurrently if exists account.invitations_by_workspace;
create unique index concurrently invitations_by_workspace on account.invitations (tenant_id, id);

-- +goose Down
select 1 / 0; -- forward only
