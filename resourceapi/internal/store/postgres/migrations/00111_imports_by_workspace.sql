-- +goose NO TRANSACTION
-- The primary key of imports gets the workspace (00121).

-- +goose Up
drop index concurrently if exists resource.imports_workspace_id;
create unique index concurrently imports_workspace_id on resource.imports (tenant_id, id);

-- +goose Down
select 1 / 0; -- forward only
