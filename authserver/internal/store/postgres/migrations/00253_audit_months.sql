-- +goose NO TRANSACTION
-- The audit log is partitioned by month. The table that was the audit log becomes the partition audit_events_earlier, which ends with the
-- current month or the next one: nothing is copied, and no lock lasts longer than a change of the catalogue.

-- +goose Up
-- audit_months returns the partitions of the audit log. The first one has no start, and audit_events_default neither start nor end.
-- +goose StatementBegin
create or replace function account.audit_months() returns table (name text, starts timestamptz, ends timestamptz)
language sql stable
set search_path = account, pg_temp
as $$
  select c.relname::text, substring(b.range from 'FROM \(''([^'']*)''\)')::timestamptz,
    substring(b.range from 'TO \(''([^'']*)''\)')::timestamptz
  from pg_inherits i join pg_class c on c.oid = i.inhrelid
  cross join lateral (select pg_get_expr(c.relpartbound, c.oid) as range) b
  where i.inhparent = 'audit_events'::regclass
$$;

-- make_audit_months adds the partitions of this month and of the three after it, unless they exist.
create or replace function account.make_audit_months() returns void
language plpgsql volatile security definer
set search_path = account, pg_temp
set lock_timeout = '1s'
as $$
declare
  begins timestamptz;
  over timestamptz;
  name text;
begin
  perform pg_advisory_xact_lock(hashtextextended('account.audit_months', 0));
  for begins, over in
    select (m.month at time zone 'UTC'), (m.month + interval '1 month') at time zone 'UTC'
    from generate_series(0, 3) n
    cross join lateral (select date_trunc('month', now() at time zone 'UTC') + make_interval(months => n) as month) m
  loop
    continue when exists (select from audit_months() p where p.ends > begins and coalesce(p.starts, '-infinity') <= begins);
    name := 'audit_events_' || to_char(begins at time zone 'UTC', 'YYYY_MM');
    execute format('create table %I (like audit_events including defaults including indexes)', name);
    execute format('alter table %I set (autovacuum_vacuum_scale_factor = 0.05)', name);
    -- A refusal is recorded once for each grant, reason and hour (RecordRefusal). An hour belongs to one month.
    execute format($sql$create unique index %I on %I
      (subject, (detail->>'reason'), date_trunc('hour', at at time zone 'UTC')) where action = 'grant.refused'$sql$,
      name || '_refusals', name);
    -- The default partition has rows of the month if no process has made months for three months.
    if exists (select from audit_events_default where at >= begins and at < over) then
      lock table audit_events_default in access exclusive mode;
      execute format('with moved as (delete from audit_events_default where at >= $1 and at < $2 returning *)
        insert into %I select * from moved', name) using begins, over;
    end if;
    execute format('alter table audit_events attach partition %I for values from (%L) to (%L)', name, begins, over);
  end loop;
end
$$;

-- delete_audit_events drops the months that ended before a time. Of the events in audit_events_earlier and audit_events_default, it
-- deletes at most a number. If a table is in use, its month is dropped by a later call.
create or replace function account.delete_audit_events(before timestamptz, most integer) returns integer
language plpgsql volatile security definer
set search_path = account, pg_temp
set lock_timeout = '1s'
as $$
declare
  part record;
  number integer;
  deleted integer := 0;
begin
  if before is null or before > now() - interval '90 days' then
    raise exception 'audit events are kept for at least 90 days';
  end if;
  for part in select p.name from audit_months() p where p.ends <= before order by p.ends loop
    begin
      execute format('select count(*) from (select from %I limit 1000000) counted', part.name) into number;
      execute format('drop table %I', part.name);
      deleted := deleted + number;
    exception when lock_not_available then
      exit;
    end;
  end loop;
  for part in select p.name from audit_months() p where p.starts is null and (p.ends is null or p.ends > before) loop
    execute format('delete from %1$I where (tenant_id, at, id) in (
      select tenant_id, at, id from %1$I where at < $1 order by at limit $2 for update skip locked)', part.name)
      using before, most;
    get diagnostics number = row_count;
    deleted := deleted + number;
  end loop;
  return deleted;
end
$$;

-- audit_events_due returns the time before which delete_audit_events(before, ...) deletes: a month goes as a whole.
create or replace function account.audit_events_due(before timestamptz) returns timestamptz
language sql stable security definer
set search_path = account, pg_temp
as $$
  select case when exists (select from audit_months() p where p.starts is null and p.ends > before) then before
    else date_trunc('month', before at time zone 'UTC') at time zone 'UTC' end
$$;

create or replace procedure account.partition_audit_events() language plpgsql as $$
declare
  -- At least 20 days from now, so that the constraint refuses nothing while this file is repeated.
  ends timestamptz := (date_trunc('month', now() at time zone 'UTC' + interval '20 days') + interval '1 month') at time zone 'UTC';
  busy boolean := false;
begin
  if (select relkind from pg_class where oid = 'account.audit_events'::regclass) = 'p' then
    return;
  end if;
  alter table account.audit_events drop constraint if exists audit_events_earlier;
  execute format('alter table account.audit_events add constraint audit_events_earlier check (at < %L) not valid', ends);
  commit;
  alter table account.audit_events validate constraint audit_events_earlier;
  commit;
  begin
    lock table account.audit_events in access exclusive mode;
    alter table account.audit_events rename to audit_events_earlier;
    drop trigger set_audit_workspace on account.audit_events_earlier;
    revoke all on account.audit_events_earlier from almoner_authserver;
    alter table account.audit_events_earlier drop constraint audit_events_pkey, drop constraint audit_events_workspace;
    alter table account.audit_events_earlier add constraint audit_events_earlier_pkey primary key using index audit_events_key;
    drop index account.audit_events_by_tenant; -- the key has its order
    alter index account.audit_events_by_user rename to audit_events_earlier_by_user;
    alter index account.audit_events_by_subject rename to audit_events_earlier_by_subject;
    alter index account.audit_events_by_time rename to audit_events_earlier_by_time;
    alter index account.audit_events_by_request rename to audit_events_earlier_by_request;
    alter index account.audit_events_refusals rename to audit_events_earlier_refusals;

    create table account.audit_events (like account.audit_events_earlier including defaults, primary key (tenant_id, at, id))
      partition by range (at);
    create index audit_events_by_user on account.audit_events (user_id, at desc, id desc);
    create index audit_events_by_subject on account.audit_events (subject, at desc);
    create index audit_events_by_time on account.audit_events (at);
    create index audit_events_by_request on account.audit_events (tenant_id, request_id, at desc, id desc) where request_id <> '';
    create trigger set_audit_workspace before insert on account.audit_events
      for each row when (new.tenant_id is null) execute function account.set_audit_workspace();
    grant select, insert (id, tenant_id, user_id, actor, action, subject, detail, request_id)
      on account.audit_events to almoner_authserver;
    execute format('alter table account.audit_events attach partition account.audit_events_earlier
      for values from (minvalue) to (%L)', ends);
    alter table account.audit_events_earlier drop constraint audit_events_earlier;
    create table account.audit_events_default partition of account.audit_events default;
    perform account.make_audit_months();
  exception when lock_not_available then
    busy := true;
  end;
  if busy then
    alter table account.audit_events drop constraint audit_events_earlier;
    commit;
    raise exception using errcode = 'lock_not_available', message = 'account.audit_events is in use';
  end if;
end
$$;
-- +goose StatementEnd
revoke all on function account.audit_months, account.make_audit_months, account.audit_events_due from public;
grant execute on function account.make_audit_months, account.audit_events_due to almoner_authserver;
call account.partition_audit_events();
drop procedure account.partition_audit_events();

-- +goose Down
select 1 / 0; -- forward only
