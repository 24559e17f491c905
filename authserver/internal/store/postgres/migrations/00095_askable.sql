-- A workspace's connector policy limits what a connector could be given if it asked again.

-- +goose Up
-- +goose StatementBegin
create or replace function account.askable(asked_grant uuid)
returns text[] -- null: no such grant, or its client is deleted
language sql stable parallel safe security definer
set search_path = account, pg_temp
as $$
  select array(
    select p from unnest(c.required_permissions) as p
    where g.kind <> 'connector' or l.tenant_id is null
      or p = any (l.permissions) and coalesce(c.connector_platform, 'other') = any (l.platforms))
  from grants g
  join oauth_clients c on c.id = g.client_id
  left join connector_policies l on l.tenant_id = g.tenant_id
  where g.id = asked_grant and c.deleted_at is null;
$$;
-- +goose StatementEnd

-- +goose Down
select 1 / 0; -- forward only
