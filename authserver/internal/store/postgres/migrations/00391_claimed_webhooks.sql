-- A worker claims the endpoints that it sends to, until a time by which it has finished or its process has died. Each endpoint was a job of
-- River before, whose uniqueness, fetching and completion cost several statements for each turn. The previous release still does it that
-- way: webhooks_due leaves out what is claimed. While both run, one of the previous release may send what a claim sends too, with the same
-- webhook-id.
--
-- What a worker looks for does not grow with the workspaces and events of a deployment: it looks at some workspaces with endpoints, then
-- the next ones, and each event is numbered before its endpoints are claimed.

-- +goose Up
-- slow is whether the receiver took more than a second to accept the last event.
alter table account.webhooks
  add column claimed_until timestamptz not null default '-infinity',
  add column slow boolean not null default false;

-- +goose StatementBegin
-- workspaces_with_webhooks returns up to most workspaces after one, in order, that have an enabled endpoint.
create function account.workspaces_with_webhooks(after uuid, most integer) returns setof uuid
language plpgsql stable security definer
set search_path = account, pg_temp
as $$
begin
  return query select distinct w.tenant_id from webhooks w where w.enabled and w.tenant_id > after order by w.tenant_id limit most;
end
$$;

-- workspaces_unread returns those of the workspaces that may have events without a sequence and are not among workspaces_behind. A
-- workspace has no counter before its first event if an early release added its endpoint.
create function account.workspaces_unread(workspaces uuid[]) returns setof uuid
language plpgsql stable security definer
set search_path = account, pg_temp
as $$
declare
  counted uuid[];
  waiting uuid[];
begin
  counted := array(select s.tenant_id from event_sequences s where s.tenant_id = any (workspaces));
  waiting := array(select s.tenant_id from event_sequences s where s.tenant_id = any (workspaces) and not s.behind);
  waiting := unread_workspaces(waiting); -- by itself: a distributed database would call it on the node of the statement above
  return query select f.id from unnest(workspaces) f (id) where f.id = any (waiting) or f.id <> all (counted);
end
$$;

-- claim_webhooks claims endpoints of the workspaces with something to send, and any with a delivery that a user requested, until a time:
-- those first that were tried longest ago. most_failing is for endpoints whose last attempt failed or was slow, of which a
-- workspace may have 4 claimed at once, and most for all others: receivers that do not answer cost the others nothing.
create function account.claim_webhooks(workspaces uuid[], lasts interval, most integer, most_failing integer)
returns table (webhook uuid, tenant uuid, failing boolean, until timestamptz)
language plpgsql volatile security definer
set search_path = account, pg_temp
as $$
declare
  owners uuid[];
  due uuid[];
begin
  perform set_config('citus.multi_shard_modify_mode', 'sequential', true); -- other servers ignore it
  until := clock_timestamp() + lasts; -- a distributed database accepts times in changes only as parameters
  with last as materialized (select s.tenant_id, s.last from event_sequences s where s.tenant_id = any (workspaces)),
    found as (
      select w.tenant_id, w.id, w.tried_at, w.slow or w.failing_since is not null as fails
      from webhooks w join last l on l.tenant_id = w.tenant_id
      where w.tenant_id = any (workspaces) and w.enabled and w.next_try_at <= now() and l.last > w.position
        and w.claimed_until <= now()
      union
      select w.tenant_id, w.id, w.tried_at, w.slow or w.failing_since is not null from webhooks w
      where (w.tenant_id, w.id) in (select d.tenant_id, d.webhook_id from webhook_deliveries d where d.tried_at is null)
        and w.claimed_until <= now()
    ),
    claimed as (
      select w.tenant_id, count(*) as number from webhooks w
      where w.tenant_id in (select f.tenant_id from found f where f.fails) and w.claimed_until > now()
        and (w.slow or w.failing_since is not null)
      group by w.tenant_id
    ),
    placed as (
      select f.*, row_number() over (partition by f.tenant_id, f.fails order by f.tried_at nulls first) + coalesce(c.number, 0) as own
      from found f left join claimed c on c.tenant_id = f.tenant_id
    )
    select array_agg(o.tenant_id), array_agg(o.id) into owners, due from (
      select p.*, row_number() over (partition by p.fails order by p.tried_at nulls first) as place from placed p
      where p.own <= 4 or not p.fails
    ) o
    where o.place <= case when o.fails then most_failing else most end;
  -- Another worker may have found the same.
  due := array(select w.id from webhooks w where w.tenant_id = any (owners) and w.id = any (due) and w.claimed_until <= now()
    for update skip locked);
  return query update webhooks w set claimed_until = claim_webhooks.until
    where w.tenant_id = any (owners) and w.id = any (due) returning w.id, w.tenant_id, w.slow or w.failing_since is not null, w.claimed_until;
end
$$;

-- webhook_events returns up to most events of the types after a sequence, if they were written since a time, among as many as examine says.
-- If there are fewer, the last row has a sequence alone: up to it there are no others.
create function account.webhook_events(
  tenant uuid, after bigint, since timestamptz, kinds text[], most integer, examine integer
) returns table (sequence bigint, type text, data jsonb, created_at timestamptz)
language plpgsql stable security definer
set search_path = account, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
as $$
declare
  final bigint;
  found_events bigint;
  examined bigint;
  reached bigint;
begin
  select s.last into final from event_sequences s where s.tenant_id = tenant;
  return query select e.sequence, e.type, e.data, e.created_at from (
      select * from events v
      where v.tenant_id = tenant and v.sequence > after and v.sequence <= final
        and v.created_at >= date_trunc('month', (now() - interval '30 days') at time zone 'UTC') at time zone 'UTC'
      order by v.sequence limit examine
    ) e
    where e.type = any (kinds) and e.created_at > now() - interval '30 days' and e.created_at >= since
    order by e.sequence limit most;
  get diagnostics found_events = row_count;
  if found_events < most then
    select count(*), max(x.sequence) into examined, reached from (
      select v.sequence from events v
      where v.tenant_id = tenant and v.sequence > after and v.sequence <= final
        and v.created_at >= date_trunc('month', (now() - interval '30 days') at time zone 'UTC') at time zone 'UTC'
      order by v.sequence limit examine
    ) x;
    if examined < examine then
      reached := final;
    end if;
    return query select greatest(reached, after), null::text, null::jsonb, null::timestamptz;
  end if;
end
$$;

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
    where w.claimed_until <= now() and ((w.enabled and w.next_try_at <= now()
        -- The first look at a workspace counts its events.
        and (l.last is null or l.last > w.position or w.tenant_id = any (unread)))
      or w.id in (select d.webhook_id from webhook_deliveries d where d.tried_at is null))
    order by w.tried_at nulls first limit most;
end
$$;
-- +goose StatementEnd

revoke all on function account.workspaces_with_webhooks, account.workspaces_unread, account.claim_webhooks, account.webhook_events
  from public;
grant execute on function account.workspaces_with_webhooks, account.workspaces_unread, account.claim_webhooks, account.webhook_events
  to almoner_resourceapi;

-- +goose Down
select 1 / 0; -- forward only
