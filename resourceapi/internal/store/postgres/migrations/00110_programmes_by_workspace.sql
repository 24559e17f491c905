-- +goose NO TRANSACTION
-- The primary key of programmes gets the workspace (00121): a distributed database needs it in every unique key.

-- +goose Up
drop index concurrently if exists resource.programmes_workspace_id;
create unique index concurrently programmes_workspace_id on resource.programmes (tenant_id, id);

-- +goose Down
select 1 / 0; -- forward only
