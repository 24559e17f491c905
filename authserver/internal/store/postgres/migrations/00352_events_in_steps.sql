-- Events get their sequences in steps of a bounded number, each of which is one statement and so one transaction: a workspace with any
-- number of unread events is read a step at a time, and a step that failed loses nothing that a former one did. A statement examines a
-- bounded number of events, whether or not the caller may read them. Months are read whole, with their events that are older than 30
-- days: those would otherwise be passed over in every step. read_events and the former next_webhook_event stay for the previous release.

-- +goose Up
-- number_events assigns sequences to at most the given number of committed events of a workspace. It returns the last sequence, and
-- whether events may be left. The settings keep a step from reading all events, whatever the statistics say.
-- +goose StatementBegin
create function account.number_events(tenant uuid, most integer, out last bigint, out behind boolean)
language plpgsql volatile security definer
set search_path = account, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
as $$
declare
  unread boolean;
  numbered bigint;
begin
  unread := exists (select from events e where e.tenant_id = tenant and e.sequence is null
    and e.created_at >= date_trunc('month', (now() - interval '30 days') at time zone 'UTC') at time zone 'UTC'
    and e.created_at < now() + interval '1 day');
  -- After the events: what was read by then, others have counted.
  select s.last, s.behind into last, behind from event_sequences s where s.tenant_id = tenant;
  if behind is false and not unread then
    return;
  end if;
  insert into event_sequences (tenant_id, last) values (tenant, 0) on conflict do nothing;
  select s.last into last from event_sequences s where s.tenant_id = tenant for update;
  -- A new statement: it sees what the transaction that held the lock has numbered.
  update events e set sequence = number_events.last + n.number
  from (
    select u.id, u.created_at, row_number() over (order by u.id) as number from (
      select v.id, v.created_at from events v
      where v.tenant_id = tenant and v.sequence is null
        and v.created_at >= date_trunc('month', (now() - interval '30 days') at time zone 'UTC') at time zone 'UTC'
        and v.created_at < now() + interval '1 day'
      order by v.id limit most
    ) u
  ) n
  where e.tenant_id = tenant and e.id = n.id and e.created_at = n.created_at;
  get diagnostics numbered = row_count;
  last := last + numbered;
  behind := numbered >= most;
  update event_sequences s set last = number_events.last, behind = number_events.behind where s.tenant_id = tenant;
end
$$;

-- number_events does one step, for endpoints that are added and for the previous release.
create or replace function account.number_events(tenant uuid) returns bigint
language sql volatile security definer
set search_path = account, pg_temp
as $$
  select n.last from number_events(tenant, 1000) n
$$;

-- events_after returns events of a workspace after a sequence, oldest first, of the subjects in kinds (programme, form, ...). It assigns
-- sequences to step events and examines as many as examine says. If more may follow after fewer events than most, the last row has a
-- sequence alone: the one after which they follow. The settings make Postgres read events in the order of their sequences.
create function account.events_after(
  tenant uuid, after bigint, kinds text[], most integer, step integer, examine integer
) returns table (sequence bigint, type text, data jsonb, created_at timestamptz)
language plpgsql volatile security definer
set search_path = account, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
as $$
declare
  final bigint;
  unread boolean;
  found_events bigint;
  examined bigint;
  reached bigint;
begin
  select n.last, n.behind into final, unread from number_events(tenant, step) n;
  return query select e.sequence, e.type, e.data, e.created_at from (
      select * from events v
      where v.tenant_id = tenant and v.sequence > after and v.sequence <= final
        and v.created_at >= date_trunc('month', (now() - interval '30 days') at time zone 'UTC') at time zone 'UTC'
        and v.created_at < now() + interval '1 day'
      order by v.sequence limit examine
    ) e
    where e.created_at > now() - interval '30 days' and split_part(e.type, '.', 1) = any (kinds)
    order by e.sequence limit most;
  get diagnostics found_events = row_count;
  if found_events < most and after < final and (unread or final - after >= examine) then
    select count(*), max(x.sequence) into examined, reached from (
      select v.sequence from events v
      where v.tenant_id = tenant and v.sequence > after and v.sequence <= final
        and v.created_at >= date_trunc('month', (now() - interval '30 days') at time zone 'UTC') at time zone 'UTC'
        and v.created_at < now() + interval '1 day'
      order by v.sequence limit examine
    ) x;
    if examined < examine then
      reached := final;
    end if;
    if unread or examined = examine then
      return query select reached, null::text, null::jsonb, null::timestamptz;
    end if;
  end if;
end
$$;

-- next_webhook_event returns the first event of the types after a sequence, if it was written since a time, among as many as examine
-- says. If there is none, it returns a row with a sequence alone: no such event precedes it. It assigns sequences to step events if no
-- event is left that has one.
create function account.next_webhook_event(
  tenant uuid, after bigint, since timestamptz, kinds text[], step integer, examine integer
) returns table (sequence bigint, type text, data jsonb, created_at timestamptz)
language plpgsql volatile security definer
set search_path = account, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
as $$
declare
  final bigint;
  examined bigint;
  reached bigint;
begin
  select s.last into final from event_sequences s where s.tenant_id = tenant;
  if final is null or final <= after then
    select n.last into final from number_events(tenant, step) n;
  end if;
  return query select e.sequence, e.type, e.data, e.created_at from (
      select * from events v
      where v.tenant_id = tenant and v.sequence > after and v.sequence <= final
        and v.created_at >= date_trunc('month', (now() - interval '30 days') at time zone 'UTC') at time zone 'UTC'
        and v.created_at < now() + interval '1 day'
      order by v.sequence limit examine
    ) e
    where e.type = any (kinds) and e.created_at > now() - interval '30 days' and e.created_at >= since
    order by e.sequence limit 1;
  if not found then
    select count(*), max(x.sequence) into examined, reached from (
      select v.sequence from events v
      where v.tenant_id = tenant and v.sequence > after and v.sequence <= final
        and v.created_at >= date_trunc('month', (now() - interval '30 days') at time zone 'UTC') at time zone 'UTC'
        and v.created_at < now() + interval '1 day'
      order by v.sequence limit examine
    ) x;
    if examined < examine then
      reached := final;
    end if;
    return query select greatest(reached, after), null::text, null::jsonb, null::timestamptz;
  end if;
end
$$;

-- unread_workspaces returns those of the workspaces that have an event without a sequence. It looks for one event in each, however many
-- there are: the settings keep it from reading all of them.
create function account.unread_workspaces(asked uuid[]) returns uuid[]
language plpgsql stable security definer
set search_path = account, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set enable_hashagg = off set enable_sort = off
as $$
begin
  return array(select s.tenant_id from event_sequences s where s.tenant_id = any (asked)
    and exists (select from events e where e.tenant_id = s.tenant_id and e.sequence is null
      and e.created_at >= date_trunc('month', (now() - interval '30 days') at time zone 'UTC') at time zone 'UTC'
      and e.created_at < now() + interval '1 day'));
end
$$;

-- webhooks_due returns endpoints with something to send, those first that were tried longest ago.
create or replace function account.webhooks_due(most integer) returns table (webhook uuid, tenant uuid)
language plpgsql stable security definer
set search_path = account, pg_temp
as $$
declare
  workspaces uuid[];
  unread uuid[];
begin
  workspaces := array(select distinct w.tenant_id from webhooks w where w.enabled and w.next_try_at <= now());
  unread := unread_workspaces(workspaces);
  return query
    with last as materialized (select s.tenant_id, s.last from event_sequences s where s.tenant_id = any (workspaces))
    select w.id, w.tenant_id from webhooks w left join last l on l.tenant_id = w.tenant_id
    where (w.enabled and w.next_try_at <= now()
        -- The first look at a workspace counts its events.
        and (l.last is null or l.last > w.position or w.tenant_id = any (unread)))
      or w.id in (select d.webhook_id from webhook_deliveries d where d.tried_at is null)
    order by w.tried_at nulls first limit most;
end
$$;

-- workspaces_behind returns workspaces with events that have no sequence yet although a step has ended.
create function account.workspaces_behind(most integer) returns table (tenant uuid)
language plpgsql stable security definer
set search_path = account, pg_temp
as $$
begin
  return query select s.tenant_id from event_sequences s where s.behind limit most;
end
$$;
-- +goose StatementEnd

revoke all on function account.number_events(uuid, integer), account.events_after, account.workspaces_behind,
  account.unread_workspaces,
  account.next_webhook_event(uuid, bigint, timestamptz, text[], integer, integer) from public;
grant execute on function account.number_events(uuid, integer), account.events_after, account.workspaces_behind,
  account.next_webhook_event(uuid, bigint, timestamptz, text[], integer, integer) to almoner_resourceapi;

-- +goose Down
select 1 / 0; -- forward only
