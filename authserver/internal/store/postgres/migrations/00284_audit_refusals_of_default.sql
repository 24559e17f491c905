-- The default partition of the audit log gets the unique index of refusals that each month has. If it already has the same refusal more
-- than once, it stays without the index, and the events move to their month once each.

-- +goose Up
-- +goose StatementBegin
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
    -- The default partition has rows of the month if no process has made months for three months. Without the index of refusals it may
    -- have the same refusal more than once.
    if exists (select from audit_events_default where at >= begins and at < over) then
      lock table audit_events_default in access exclusive mode;
      execute format('with moved as (delete from audit_events_default where at >= $1 and at < $2 returning *)
        insert into %I select * from moved on conflict do nothing', name) using begins, over;
    end if;
    execute format('alter table audit_events attach partition %I for values from (%L) to (%L)', name, begins, over);
  end loop;
end
$$;

do $$
begin
  create unique index if not exists audit_events_default_refusals on account.audit_events_default
    (subject, (detail->>'reason'), date_trunc('hour', at at time zone 'UTC')) where action = 'grant.refused';
exception when unique_violation then
  raise notice 'audit_events_default has the same refusal more than once';
end
$$;
-- +goose StatementEnd

-- +goose Down
select 1 / 0; -- forward only
