-- +goose NO TRANSACTION
-- Events are partitioned by month, as the audit log is (migration 253). The table that had the events becomes the partition
-- events_earlier, which ends with the current month or the next one: nothing is copied, and no lock lasts longer than a change of the
-- catalogue. A table that was distributed before stays one table on each node, because Citus refuses some of these changes.
--
-- An index makes sequences unique within a month. Sequences of two months differ, because number_events assigns them under the lock of
-- the workspace's counter.

-- +goose Up
-- +goose StatementBegin
-- Events are numbered and read for 30 days. The bounds of created_at let Postgres read only the partitions of that time. They are not
-- variables, because Postgres would then expect few rows and not read events in the order of their sequences.
create or replace function account.number_events(tenant uuid) returns bigint
language plpgsql volatile security definer
set search_path = account, pg_temp
as $$
declare
  former bigint;
  numbered bigint;
begin
  if exists (select from events e
    where e.tenant_id = tenant and e.sequence is null
      and e.created_at > now() - interval '30 days' and e.created_at < now() + interval '1 day') then
    insert into event_sequences (tenant_id, last) values (tenant, 0) on conflict do nothing;
    select s.last into former from event_sequences s where s.tenant_id = tenant for update;
    -- A new statement: it sees what the transaction that held the lock has numbered.
    update events e set sequence = former + n.number
    from (select u.id, u.created_at, row_number() over (order by u.id) as number from events u
      where u.tenant_id = tenant and u.sequence is null
        and u.created_at > now() - interval '30 days' and u.created_at < now() + interval '1 day') n
    where e.tenant_id = tenant and e.id = n.id and e.created_at = n.created_at;
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
    where e.tenant_id = tenant and e.sequence > after
      and e.created_at > now() - interval '30 days' and e.created_at < now() + interval '1 day'
      and split_part(e.type, '.', 1) = any (kinds)
    order by e.sequence limit most;
end
$$;

create or replace function account.next_webhook_event(tenant uuid, after bigint, kinds text[])
returns table (sequence bigint, type text, data jsonb, created_at timestamptz, last bigint)
language plpgsql volatile security definer
set search_path = account, pg_temp
as $$
declare
  final bigint := number_events(tenant);
begin
  return query select e.sequence, e.type, e.data, e.created_at, final
    from (select) one left join lateral (
      select * from events v
      where v.tenant_id = tenant and v.sequence > after and v.sequence <= final and v.type = any (kinds)
        and v.created_at > now() - interval '30 days' and v.created_at < now() + interval '1 day'
      order by v.sequence limit 1
    ) e on true;
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
  waiting := array(select distinct e.tenant_id from events e
    where e.sequence is null and e.tenant_id = any (workspaces)
      and e.created_at > now() - interval '30 days' and e.created_at < now() + interval '1 day');
  return query
    with last as materialized (select s.tenant_id, s.last from event_sequences s where s.tenant_id = any (workspaces))
    select w.id, w.tenant_id from webhooks w left join last l on l.tenant_id = w.tenant_id
    where (w.enabled and w.next_try_at <= now() and (l.last > w.position or w.tenant_id = any (waiting)))
      or w.id in (select d.webhook_id from webhook_deliveries d where d.tried_at is null)
    order by w.tried_at nulls first limit most;
end
$$;

create or replace function account.make_event_months() returns void
language sql volatile security definer
set search_path = account, pg_temp
as $$
  select make_months('account.events')
$$;

-- events_due returns the time before which events are deleted now: a month is dropped as a whole.
create or replace function account.events_due(before timestamptz) returns timestamptz
language sql stable security definer
set search_path = account, pg_temp
as $$
  select case when (select bool_or(p.starts is null and p.ends > before) from months_of('account.events') p) is false
    then date_trunc('month', before at time zone 'UTC') at time zone 'UTC' else before end
$$;

-- drop_event_month drops the oldest month that ended before a time, and returns the number of its events. It returns null if there is no
-- such month, or if events are in use: a later call drops it.
create or replace function account.drop_event_month(before timestamptz) returns integer
language plpgsql volatile security definer
set search_path = account, pg_temp
set lock_timeout = '100ms'
as $$
declare
  newest timestamptz := now() - interval '30 days';
  month text;
  number integer;
begin
  select p.name into month from months_of('account.events') p where p.ends <= least(before, newest)
    order by p.ends limit 1;
  if month is null then
    return null;
  end if;
  begin
    execute format('select count(*) from (select 1 from %s limit 1000000) counted', month) into number;
    execute format('drop table %s', month);
  exception when lock_not_available or undefined_table then -- another process has dropped it
    return null;
  end;
  return number;
end
$$;

-- delete_events deletes old events that are in no month: those of events_earlier, or of events if it is one table.
create or replace function account.delete_events(before timestamptz, most integer) returns integer
language plpgsql volatile security definer
set search_path = account, pg_temp
as $$
declare
  newest timestamptz := now() - interval '30 days';
  bound timestamptz := least(before, newest);
  part text;
  workspace uuid;
  number integer;
  deleted integer := 0;
begin
  for part in select p.name from months_of('account.events') p where p.starts is null
    union all select 'account.events' where not exists (select from months_of('account.events'))
  loop
    for workspace in execute format('select distinct e.tenant_id from %s e where e.created_at < $1', part) using bound loop
      execute format('delete from %1$s e where e.tenant_id = $1 and e.id = any (array(
        select o.id from %1$s o where o.tenant_id = $1 and o.created_at < $2
        order by o.created_at limit $3 for update skip locked))', part) using workspace, bound, most - deleted;
      get diagnostics number = row_count;
      deleted := deleted + number;
      if deleted >= most then
        return deleted;
      end if;
    end loop;
  end loop;
  return deleted;
end
$$;

create or replace procedure account.partition_events() language plpgsql as $$
declare
  -- At least 20 days from now, so that the constraint refuses nothing while this file is repeated.
  ends timestamptz := (date_trunc('month', now() at time zone 'UTC' + interval '20 days') + interval '1 month') at time zone 'UTC';
  busy boolean := false;
  is_distributed boolean := false;
  first bigint;
begin
  if (select relkind from pg_class where oid = 'account.events'::regclass) = 'p' then
    return;
  end if;
  if to_regclass('pg_catalog.pg_dist_partition') is not null then
    execute 'select exists (select from pg_catalog.pg_dist_partition where logicalrelid = $1)' into is_distributed
      using 'account.events'::regclass;
  end if;
  if is_distributed then
    drop index if exists account.events_key;
    return;
  end if;
  alter table account.events drop constraint if exists events_earlier;
  execute format('alter table account.events add constraint events_earlier check (created_at < %L) not valid', ends);
  commit;
  alter table account.events validate constraint events_earlier;
  commit;
  begin
    lock table account.events in access exclusive mode;
    first := nextval(pg_get_serial_sequence('account.events', 'id'));
    alter table account.events rename to events_earlier;
    revoke all on account.events_earlier from almoner_authserver;
    alter table account.events_earlier alter column id drop identity;
    alter table account.events_earlier drop constraint events_pkey;
    alter table account.events_earlier add constraint events_earlier_pkey primary key using index events_key;
    alter index account.events_by_sequence rename to events_earlier_by_sequence;
    alter index account.events_without_sequence rename to events_earlier_without_sequence;
    alter index account.events_by_age rename to events_earlier_by_age;

    create table account.events (like account.events_earlier including defaults, primary key (tenant_id, id, created_at))
      partition by range (created_at);
    execute format('alter table account.events alter column id add generated always as identity (start with %s)', first);
    grant select on account.events to almoner_authserver;
    execute format('alter table account.events attach partition account.events_earlier for values from (minvalue) to (%L)', ends);
    alter table account.events_earlier drop constraint events_earlier;
    create table account.events_later (like account.events including defaults including indexes);
    create unique index events_later_by_sequence on account.events_later (tenant_id, sequence) where sequence is not null;
    create index events_later_without_sequence on account.events_later (tenant_id, id) where sequence is null;
    create index events_later_by_age on account.events_later (created_at);
    execute format('alter table account.events attach partition account.events_later for values from (%L) to (maxvalue)', ends);
    perform account.make_months('account.events');
  exception when lock_not_available then
    busy := true;
  end;
  if busy then
    alter table account.events drop constraint events_earlier;
    commit;
    raise exception using errcode = 'lock_not_available', message = 'account.events is in use';
  end if;
end
$$;
-- +goose StatementEnd
revoke all on function account.make_event_months, account.events_due, account.drop_event_month from public;
grant execute on function account.make_event_months, account.events_due, account.drop_event_month to almoner_authserver;
call account.partition_events();
drop procedure account.partition_events();

-- +goose Down
select 1 / 0; -- forward only
