-- +goose NO TRANSACTION
-- Submissions are partitioned by the month of created_at, as events are (account.make_months). The table that had the submissions becomes
-- the partition submissions_0000, which ends with the current month or the next one: nothing is copied, and no lock lasts longer than a
-- change of the catalogue. The previous release recognises a used token by the name of the table, which may end in digits. A table that
-- was distributed before stays one table on each node, because Citus refuses some of these changes.
--
-- An index makes tokens unique within a month. A token cannot be used in two months, because on the first day of a month
-- refuse_used_token also checks the previous month.

-- +goose Up
-- The last time at which a submission of the form ended that was more than 30 days old. With it, next_moment and the lists of changed
-- submissions need not read all months.
alter table resource.list_locks add column if not exists late_at timestamptz;

-- +goose StatementBegin
-- next_moment reads only the partitions of the last 40 days. Times before the last hour are not later than the clock, and late_at has the
-- time at which an older submission ended.
create or replace function resource.next_moment(workspace uuid, list_name text, records integer default 1)
  returns timestamptz language plpgsql volatile set search_path = pg_catalog as $$
declare
  newest timestamptz;
  late timestamptz;
begin
  select l.late_at into late from resource.list_locks l where l.tenant_id = workspace and l.list = list_name for update;
  if not found then
    insert into resource.list_locks (tenant_id, list) values (workspace, list_name) on conflict do nothing;
    select l.late_at into late from resource.list_locks l where l.tenant_id = workspace and l.list = list_name for update;
  end if;
  -- Each statement of this function sees what was committed before it, and so what the lock was waited for.
  if list_name = 'programmes' then
    newest := greatest(
      (select p.created_at from resource.programmes p where p.tenant_id = workspace order by p.created_at desc limit 1),
      (select p.updated_at from resource.programmes p where p.tenant_id = workspace and p.updated_at > p.created_at
        order by p.updated_at desc limit 1));
  elsif list_name = 'forms' then
    newest := (select f.created_at from resource.forms f where f.tenant_id = workspace order by f.created_at desc limit 1);
  else
    newest := greatest(late,
      (select s.created_at from resource.submissions s where s.tenant_id = workspace and s.form_id = list_name::uuid
        and s.created_at > now() - interval '1 hour' order by s.created_at desc limit 1),
      (select s.finished_at from resource.submissions s where s.tenant_id = workspace and s.form_id = list_name::uuid
        and s.finished_at > now() - interval '1 hour' and s.created_at > now() - interval '40 days'
        order by s.finished_at desc limit 1));
  end if;
  return greatest(clock_timestamp(), newest + records * interval '1 microsecond');
end
$$;

-- refuse_used_token refuses a token that was used in the previous month. A token is valid for an hour and for one form. The transaction has
-- locked the form's list (next_moment), so what was inserted with the token before is committed.
create or replace function resource.refuse_used_token() returns trigger language plpgsql set search_path = pg_catalog as $$
begin
  if exists (select 1 from resource.submissions s where s.tenant_id = new.tenant_id and s.token_id = new.token_id
      and s.created_at > new.created_at - interval '1 day' and s.created_at < new.created_at) then
    raise unique_violation using message = 'the token was used in the previous month', table = 'submissions';
  end if;
  return new;
end
$$;

create or replace function resource.note_late() returns trigger language plpgsql set search_path = pg_catalog as $$
begin
  update resource.list_locks set late_at = new.finished_at where tenant_id = new.tenant_id and list = new.form_id::text;
  return null;
end
$$;

-- make_submission_months adds the months that are missing. If the tables are in use, it adds none: a later call does.
create or replace function resource.make_submission_months() returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $$
begin
  if exists (select 1 from account.months_of('resource.submissions') p where p.ends is null
      and p.starts < (date_trunc('month', now() at time zone 'UTC') + interval '4 months') at time zone 'UTC') then
    lock table only resource.submissions, resource.forms, resource.supporters in access exclusive mode;
    perform account.make_months('resource.submissions');
  end if;
exception when lock_not_available then
  null;
end
$$;

-- drop_submission_month drops the oldest month that ended a month before a time, which is the shortest period of a form, and that has no
-- submission left. It returns null if there is no such month, or if submissions are in use: a later call drops it.
create or replace function resource.drop_submission_month(before timestamptz) returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $$
declare
  month text;
  has_rows boolean;
begin
  for month in select p.name from account.months_of('resource.submissions') p
    where p.ends < least(before, now()) - interval '1 month' order by p.ends
  loop
    execute format('select exists (select 1 from %s)', month) into has_rows;
    if not has_rows then
      begin
        lock table only resource.submissions in access exclusive mode;
        execute format('select exists (select 1 from %s)', month) into has_rows;
        if not has_rows then
          execute format('drop table %s', month);
          return 0;
        end if;
      exception when lock_not_available or undefined_table then -- another process has dropped it
        return null;
      end;
    end if;
  end loop;
  return null;
end
$$;

create or replace procedure resource.partition_submissions() language plpgsql as $$
declare
  -- At least 20 days from now, so that the constraint refuses nothing while this file is repeated.
  ends timestamptz := (date_trunc('month', now() at time zone 'UTC' + interval '20 days') + interval '1 month') at time zone 'UTC';
  busy boolean := false;
  is_distributed boolean := false;
begin
  if (select relkind from pg_class where oid = 'resource.submissions'::regclass) = 'p' then
    return;
  end if;
  if to_regclass('pg_catalog.pg_dist_partition') is not null then
    execute 'select exists (select from pg_catalog.pg_dist_partition where logicalrelid = $1)' into is_distributed
      using 'resource.submissions'::regclass;
  end if;
  if is_distributed then
    drop index if exists resource.submissions_key;
    perform set_config('citus.enable_unsafe_triggers', 'on', true);
    create or replace trigger note_late after update on resource.submissions
      for each row when (new.finished_at > new.created_at + interval '30 days' and old.finished_at is null)
      execute function resource.note_late();
    return;
  end if;
  alter table resource.submissions drop constraint if exists submissions_earlier;
  execute format('alter table resource.submissions add constraint submissions_earlier check (created_at < %L) not valid', ends);
  commit;
  alter table resource.submissions validate constraint submissions_earlier;
  commit;
  begin
    lock table resource.submissions, resource.forms, resource.supporters in access exclusive mode;
    alter table resource.submissions rename to submissions_0000;
    revoke all on resource.submissions_0000 from almoner_resourceapi;
    alter table resource.submissions_0000 drop constraint submissions_pkey;
    alter table resource.submissions_0000 add constraint submissions_0000_pkey primary key using index submissions_key;
    drop trigger note_event on resource.submissions_0000;
    drop trigger note_supporter_left on resource.submissions_0000;

    create table resource.submissions (
      like resource.submissions_0000 including defaults,
      primary key (tenant_id, id, created_at),
      constraint submissions_form foreign key (tenant_id, form_id) references resource.forms (tenant_id, id),
      constraint submissions_supporter foreign key (tenant_id, supporter_id) references resource.supporters (tenant_id, id)
    ) partition by range (created_at);
    grant select, insert, update, delete on resource.submissions to almoner_resourceapi;
    execute format('alter table resource.submissions attach partition resource.submissions_0000
      for values from (minvalue) to (%L)', ends);
    alter table resource.submissions_0000 drop constraint submissions_earlier;
    create table resource.submissions_9999 (
      like resource.submissions_0000 including defaults including constraints including indexes
    );
    alter table resource.submissions_9999 set (autovacuum_vacuum_scale_factor = 0.05);
    execute format('alter table resource.submissions attach partition resource.submissions_9999
      for values from (%L) to (maxvalue)', ends);
    create trigger note_event after insert or update or delete on resource.submissions
      for each row execute function resource.note_event('submission', '{"status": "status", "reasons": "reasons",
        "supporter_id": "supporterId"}');
    create trigger note_supporter_left after delete on resource.submissions
      for each row when (old.supporter_id is not null) execute function resource.note_supporter_left();
    create trigger note_late after update on resource.submissions
      for each row when (new.finished_at > new.created_at + interval '30 days' and old.finished_at is null)
      execute function resource.note_late();
    create trigger refuse_used_token before insert on resource.submissions
      for each row when (extract(day from new.created_at at time zone 'UTC') = 1)
      execute function resource.refuse_used_token();
  exception when lock_not_available or deadlock_detected then
    busy := true;
  end;
  if busy then
    alter table resource.submissions drop constraint submissions_earlier;
    commit;
    raise exception using errcode = 'lock_not_available', message = 'resource.submissions is in use';
  end if;
end
$$;
-- +goose StatementEnd
revoke all on function resource.note_late, resource.refuse_used_token, resource.make_submission_months, resource.drop_submission_month from public;
grant execute on function resource.make_submission_months, resource.drop_submission_month to almoner_resourceapi;
call resource.partition_submissions();
drop procedure resource.partition_submissions();
update resource.list_locks l set late_at = s.ended
  from (select tenant_id, form_id, max(finished_at) as ended from resource.submissions
    where finished_at > created_at + interval '30 days' group by tenant_id, form_id) s
  where l.tenant_id = s.tenant_id and l.list = s.form_id::text and (l.late_at is null or l.late_at < s.ended);

-- +goose Down
select 1 / 0; -- forward only
