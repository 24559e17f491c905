-- A public form is asked for without a credential, so account.standing has nothing to go by: this tells resourceapi
-- whether a module works in a workspace, and nothing else about it.

-- +goose Up
-- +goose StatementBegin
create function account.module_state(tenant uuid, module_name text)
returns table (enabled boolean, provisioned boolean) -- no row: neither
language sql stable parallel safe security definer
set search_path = account, pg_temp
as $$
  select m.enabled, m.provisioned from tenant_modules m where m.tenant_id = tenant and m.module = module_name;
$$;
-- +goose StatementEnd

revoke all on function account.module_state from public;
grant execute on function account.module_state to almoner_resourceapi;

-- +goose Down
select 1 / 0; -- forward only
