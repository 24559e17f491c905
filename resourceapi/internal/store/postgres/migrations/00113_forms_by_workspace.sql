-- +goose NO TRANSACTION
-- The primary key of forms gets the workspace (00124).

-- +goose Up
drop index concurrently if exists resource.forms_workspace_id;
create unique index concurrently forms_workspace_id on resource.forms (tenant_id, id);

-- +goose Down
select 1 / 0; -- forward only
