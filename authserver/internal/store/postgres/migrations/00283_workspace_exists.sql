-- resourceapi apply checks that the workspaces of its file exist.

-- +goose Up
-- +goose StatementBegin
create function account.workspace_exists(tenant uuid) returns boolean
language sql stable security definer
set search_path = account, pg_temp
as $$
  select exists (select from tenants t where t.id = tenant)
$$;
-- +goose StatementEnd
revoke all on function account.workspace_exists from public;
grant execute on function account.workspace_exists to almoner_resourceapi;

-- +goose Down
select 1 / 0; -- forward only
