-- One call drops one month of audit events. It counts the events before it takes the lock on the audit log, for which it waits only a
-- moment, so that requests that record an event hardly wait. delete_audit_events deletes only rows.

-- +goose Up
-- drop_audit_month drops the oldest month that ended before a time, and returns the number of its events. It returns null if there is no
-- such month, or if the audit log is in use: a later call drops it.
-- +goose StatementBegin
create function account.drop_audit_month(before timestamptz) returns integer
language plpgsql volatile security definer
set search_path = account, pg_temp
set lock_timeout = '100ms'
as $$
declare
  month text;
  number integer;
begin
  if before is null or before > now() - interval '90 days' then
    raise exception 'audit events are kept for at least 90 days';
  end if;
  select p.name into month from audit_months() p where p.ends <= before order by p.ends limit 1;
  if month is null then
    return null;
  end if;
  begin
    execute format('select count(*) from (select from %I limit 1000000) counted', month) into number;
    execute format('drop table %I', month);
  exception when lock_not_available or undefined_table then -- another process has dropped it
    return null;
  end;
  return number;
end
$$;

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
-- +goose StatementEnd
revoke all on function account.drop_audit_month from public;
grant execute on function account.drop_audit_month to almoner_authserver;

-- +goose Down
select 1 / 0; -- forward only
