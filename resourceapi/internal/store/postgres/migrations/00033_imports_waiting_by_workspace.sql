-- +goose NO TRANSACTION
-- Imports that wait, by workspace: the worker takes the workspaces in turn, and each has only so many waiting.

-- +goose Up
drop index concurrently if exists resource.imports_waiting_by_workspace;
create index concurrently imports_waiting_by_workspace on resource.imports (tenant_id, try_at) where status = 'accepted';

-- +goose Down
select 1 / 0; -- forward only
