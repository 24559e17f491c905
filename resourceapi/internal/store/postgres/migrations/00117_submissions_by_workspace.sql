-- +goose NO TRANSACTION
-- The primary key of submissions gets the workspace (00124).

-- +goose Up
drop index concurrently if exists resource.submissions_workspace_id;
create unique index concurrently submissions_workspace_id on resource.submissions (tenant_id, id);

-- +goose Down
select 1 / 0; -- forward only
