-- Each statement on events names the workspace, so that in a distributed database one node runs it. There, every node has a
-- copy of memberships and runs its triggers: only the coordinator writes the event.

-- +goose Up
-- +goose StatementBegin
create function account.is_coordinator() returns boolean language plpgsql stable set search_path = pg_catalog as $$
declare
  coordinator boolean := true;
begin
  if to_regclass('pg_catalog.pg_dist_local_group') is not null then
    execute 'select groupid = 0 from pg_catalog.pg_dist_local_group' into coordinator;
  end if;
  return coordinator;
end
$$;

-- The functions that add events run as the service that changes the record: a distributed transaction writes the rows of a
-- workspace as one role.
create or replace function account.note_membership() returns trigger
language plpgsql security definer set search_path = account, pg_temp as $$
begin
  if not is_coordinator() then
    return null;
  end if;
  if tg_op = 'INSERT' then
    perform add_event(new.tenant_id, 'member.added', new.user_id, null);
  elsif tg_op = 'DELETE' then
    perform add_event(old.tenant_id, 'member.removed', old.user_id, null);
  else
    perform add_event(new.tenant_id, 'member.updated', new.user_id, array['permissions']);
  end if;
  return null;
end
$$;

-- delete_events deletes old events, which add_event therefore need not do.
create or replace function account.add_event(tenant uuid, kind text, subject uuid, changed text[]) returns void
language plpgsql volatile security definer
set search_path = account, pg_temp
as $$
begin
  insert into events (tenant_id, type, data)
  values (tenant, kind, jsonb_build_object('id', subject) ||
    case when changed is null then '{}' else jsonb_build_object('changed', changed) end);
end
$$;

create or replace function account.delete_events(before timestamptz, most integer) returns integer
language plpgsql volatile security definer
set search_path = account, pg_temp
as $$
declare
  newest timestamptz := now() - interval '30 days';
  bound timestamptz := least(before, newest);
  workspace uuid;
  part integer;
  deleted integer := 0;
begin
  for workspace in select distinct e.tenant_id from events e where e.created_at < bound loop
    delete from events e where e.tenant_id = workspace and e.id = any (array(
      select o.id from events o where o.tenant_id = workspace and o.created_at < bound
      order by o.created_at limit most - deleted for update skip locked));
    get diagnostics part = row_count;
    deleted := deleted + part;
    exit when deleted >= most;
  end loop;
  return deleted;
end
$$;

create or replace function account.number_events(tenant uuid) returns bigint
language plpgsql volatile security definer
set search_path = account, pg_temp
as $$
declare
  former bigint;
  numbered bigint;
begin
  if exists (select from events e where e.tenant_id = tenant and e.sequence is null) then
    insert into event_sequences (tenant_id, last) values (tenant, 0) on conflict do nothing;
    select s.last into former from event_sequences s where s.tenant_id = tenant for update;
    -- A new statement: it sees what the transaction that held the lock has numbered.
    update events e set sequence = former + n.number
    from (select u.id, row_number() over (order by u.id) as number from events u
      where u.tenant_id = tenant and u.sequence is null) n
    where e.tenant_id = tenant and e.id = n.id;
    get diagnostics numbered = row_count;
    update event_sequences s set last = former + numbered where s.tenant_id = tenant;
  end if;
  return coalesce((select s.last from event_sequences s where s.tenant_id = tenant), 0);
end
$$;

create or replace function account.read_events(tenant uuid, after bigint, kinds text[], most integer)
returns table (sequence bigint, type text, data jsonb, created_at timestamptz)
language plpgsql volatile security definer
set search_path = account, pg_temp
as $$
begin
  perform number_events(tenant);
  return query select e.sequence, e.type, e.data, e.created_at from events e
    where e.tenant_id = tenant and e.sequence > after and e.created_at > now() - interval '30 days'
      and split_part(e.type, '.', 1) = any (kinds)
    order by e.sequence limit most;
end
$$;

create or replace function account.add_webhook(
  webhook uuid, tenant uuid, by_user uuid, address text, kinds text[], sealed bytea, sealed_for bytea, most integer
) returns text
language plpgsql volatile security definer
set search_path = account, pg_temp
as $$
begin
  -- One at a time for each workspace: the list is in the order of created_at, and the number is bounded. The endpoints are on the
  -- coordinator, and so is this lock.
  perform pg_advisory_xact_lock(hashtextextended('webhooks of ' || tenant, 0));
  if exists (select from webhooks w where w.tenant_id = tenant and w.id = webhook) then
    return 'exists';
  end if;
  if (select count(*) from webhooks w where w.tenant_id = tenant) >= most then
    return 'full';
  end if;
  insert into webhooks (id, tenant_id, user_id, url, types, secret, secret_key, position, created_at)
  values (webhook, tenant, by_user, address, kinds, sealed, sealed_for, number_events(tenant), clock_timestamp());
  return 'added';
end
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
      or w.id in (select d.webhook_id from webhook_deliveries d where d.tried_at is null)
    order by w.tried_at nulls first limit most;
end
$$;
-- +goose StatementEnd

revoke all on function account.is_coordinator() from public;
grant execute on function account.is_coordinator() to almoner_authserver;

-- +goose Down
select 1 / 0; -- forward only
