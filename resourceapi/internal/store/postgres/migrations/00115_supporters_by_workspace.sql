-- +goose NO TRANSACTION
-- The primary key of supporters gets the workspace (00124).

-- +goose Up
drop index concurrently if exists resource.supporters_workspace_id;
create unique index concurrently supporters_workspace_id on resource.supporters (tenant_id, id);

-- +goose Down
select 1 / 0; -- forward only
