-- The primary keys of webhook endpoints and their deliveries are the workspace and the id, and a delivery refers to the endpoint by
-- both. The statements of the previous release, which find an endpoint by its id, go on working: ids are random.

-- +goose Up
alter table account.webhook_deliveries alter column tenant_id set not null; -- without a scan: the constraint is validated
alter table account.webhook_deliveries drop constraint webhook_deliveries_workspace;
alter table account.webhook_deliveries drop constraint webhook_deliveries_webhook_id_fkey;

-- +goose StatementBegin
do $$
begin
  if to_regclass('pg_catalog.pg_dist_partition') is null then
    alter table account.webhooks drop constraint webhooks_pkey,
      add constraint webhooks_pkey primary key using index webhooks_by_workspace_id;
    alter table account.webhook_deliveries drop constraint webhook_deliveries_pkey,
      add constraint webhook_deliveries_pkey primary key using index webhook_deliveries_by_workspace;
  else -- Citus has no "using index" for its tables; these are small
    alter table account.webhooks drop constraint webhooks_pkey;
    alter table account.webhooks add constraint webhooks_pkey primary key (tenant_id, id);
    drop index account.webhooks_by_workspace_id;
    alter table account.webhook_deliveries drop constraint webhook_deliveries_pkey;
    alter table account.webhook_deliveries add constraint webhook_deliveries_pkey primary key (tenant_id, id);
    drop index account.webhook_deliveries_by_workspace;
  end if;
end
$$;

create function account.webhook_standing(tenant uuid, webhook uuid) returns text[]
language sql stable security definer
set search_path = account, pg_temp
as $$
  select m.permissions from webhooks w join memberships m on m.tenant_id = w.tenant_id and m.user_id = w.user_id
  join users u on u.id = m.user_id
  where w.tenant_id = tenant and w.id = webhook and u.disabled_at is null
$$;

create or replace function account.webhooks_due(most integer) returns table (webhook uuid, tenant uuid)
language plpgsql stable security definer
set search_path = account, pg_temp
as $$
declare
  workspaces uuid[];
  waiting uuid[]; -- those with events that have no sequence yet
begin
  workspaces := array(select distinct w.tenant_id from webhooks w where w.enabled and w.next_try_at <= now());
  waiting := array(
    select distinct e.tenant_id from events e where e.sequence is null and e.tenant_id = any (workspaces));
  return query
    with last as materialized (select s.tenant_id, s.last from event_sequences s where s.tenant_id = any (workspaces))
    select w.id, w.tenant_id from webhooks w left join last l on l.tenant_id = w.tenant_id
    where (w.enabled and w.next_try_at <= now() and (l.last > w.position or w.tenant_id = any (waiting)))
      or (w.tenant_id, w.id) in (select d.tenant_id, d.webhook_id from webhook_deliveries d where d.tried_at is null)
    order by w.tried_at nulls first limit most;
end
$$;
-- +goose StatementEnd

alter table account.webhook_deliveries add constraint webhook_deliveries_webhook
  foreign key (tenant_id, webhook_id) references account.webhooks (tenant_id, id) on delete cascade not valid;
revoke all on function account.webhook_standing(uuid, uuid) from public;
grant execute on function account.webhook_standing(uuid, uuid) to almoner_resourceapi;

-- +goose Down
select 1 / 0; -- forward only
