-- Retention: records that are no longer needed are deleted in small batches (shared/retention).

-- +goose Up
-- When each kind of record was last worked on. A process claims a kind by its row.
create table account.retention_runs (
  kind text primary key,
  started_at timestamptz not null,
  deleted bigint not null,
  complete boolean not null -- all that was due was deleted
);
grant select, insert, update on account.retention_runs to almoner_authserver;
grant select on account.events to almoner_authserver;

-- When a key was removed. Programs older than this file do not set it.
alter table account.signing_keys add column removed_at timestamptz;
update account.signing_keys set removed_at = now() where state = 'removed';
-- +goose StatementBegin
create function account.note_removed_key() returns trigger language plpgsql as $$
begin
  new.removed_at := now();
  return new;
end
$$;

-- The audit log stays append-only for the service, but for events that are older than 90 days.
create function account.delete_audit_events(before timestamptz, most integer) returns integer
language plpgsql volatile security definer
set search_path = account, pg_temp
as $$
declare
  deleted integer;
begin
  if before is null or before > now() - interval '90 days' then
    raise exception 'audit events are kept for at least 90 days';
  end if;
  delete from audit_events where id = any (array(
    select id from audit_events where at < before order by at limit most for update skip locked));
  get diagnostics deleted = row_count;
  return deleted;
end
$$;

-- Events are kept for 30 days (contract, section 6a).
create function account.delete_events(before timestamptz, most integer) returns integer
language plpgsql volatile security definer
set search_path = account, pg_temp
as $$
declare
  deleted integer;
begin
  delete from events where id = any (array(
    select id from events where created_at < least(before, now() - interval '30 days')
    order by created_at limit most for update skip locked));
  get diagnostics deleted = row_count;
  return deleted;
end
$$;
-- +goose StatementEnd
create trigger note_removed_key before update on account.signing_keys
  for each row when (new.state = 'removed' and old.state <> 'removed') execute function account.note_removed_key();

revoke all on function account.delete_audit_events, account.delete_events from public;
grant execute on function account.delete_audit_events, account.delete_events to almoner_authserver;

-- The space of deleted rows is reused soon, so that the tables stay as large as what they keep.
alter table account.grants set (autovacuum_vacuum_scale_factor = 0.05);
alter table account.audit_events set (autovacuum_vacuum_scale_factor = 0.05);
alter table account.events set (autovacuum_vacuum_scale_factor = 0.05);

-- +goose Down
select 1 / 0; -- forward only
