-- The resource schema: everything that resourceapi owns, as it is in commit 0cfcdfce, the oldest version from which an
-- installation is upgraded in place. tenant_id names a workspace of the account schema without a foreign key: the
-- services share no table, and the gate has established that the workspace exists.

-- +goose Up
create schema resource;
revoke all on schema resource from public;
grant usage on schema resource to almoner_resourceapi;

-- Search in any case must not depend on the database's locale, which may know the letters of ASCII alone.
create collation resource.any_case (provider = icu, locale = 'und');

create table resource.programmes (
  id uuid not null,
  tenant_id uuid not null,
  name text not null check (name <> ''),
  summary text not null default '',
  status text not null check (status in ('draft', 'active', 'completed', 'archived')),
  starts_on date,
  ends_on date,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  -- what If-Match names
  version integer not null default 1,
  -- The id that a programme has in another system, chosen by the workspace's integrations.
  external_id text constraint programmes_external_id_length check (char_length(external_id) between 1 and 200),
  check (ends_on is null or starts_on is null or starts_on <= ends_on),
  primary key (tenant_id, id)
);
-- Programmes that were changed, by when: what updatedSince finds besides the new ones.
create index programmes_changed on resource.programmes (tenant_id, updated_at desc, created_at) where updated_at > created_at;
create unique index programmes_external_id on resource.programmes (tenant_id, external_id) where external_id is not null;
-- The order of the list (contract, section 6): newest first, ties by id.
create index programmes_page on resource.programmes (tenant_id, created_at desc, id desc);
create index programmes_page_by_status on resource.programmes (tenant_id, status, created_at desc, id desc);

-- The first answers of 2xx, for 24 hours (contract, section 6). The row is made before the effect, in its transaction.
create table resource.idempotency_keys (
  tenant_id uuid not null,
  user_id uuid not null,
  route text not null,
  key text not null,
  body_hash bytea not null check (length(body_hash) = 32),
  status smallint,
  etag text,
  location text,
  body bytea,
  created_at timestamptz not null default now(),
  primary key (tenant_id, user_id, route, key)
);
create index idempotency_keys_by_age on resource.idempotency_keys (created_at);

-- A file waits here with its job in one row, so that accepting it is one insert. The text goes once it is processed.
create table resource.imports (
  id uuid not null,
  tenant_id uuid not null,
  user_id uuid not null,
  content text,
  status text not null default 'accepted' check (status in ('accepted', 'processed', 'rejected')),
  imported integer not null default 0,
  errors jsonb not null default '[]',
  created_at timestamptz not null default now(),
  try_at timestamptz not null default now(),
  finished_at timestamptz,
  tries integer not null default 0, -- how often it failed: one that fails each time is rejected in the end
  check ((status = 'accepted') = (content is not null)),
  check ((status = 'accepted') = (finished_at is null)),
  primary key (tenant_id, id)
);
create index imports_by_end on resource.imports (finished_at) where finished_at is not null;
create index imports_id on resource.imports (id);
create index imports_waiting on resource.imports (try_at) where status = 'accepted';
-- The worker takes the workspaces in turn, and each has only so many waiting.
create index imports_waiting_by_workspace on resource.imports (tenant_id, try_at) where status = 'accepted';

-- Engage: the public forms of a workspace, what people sent in, and the supporters that became of it.
create table resource.forms (
  id uuid not null,
  tenant_id uuid not null,
  embed_key text not null constraint forms_embed_key unique,
  title text not null check (title <> ''),
  fields jsonb not null,
  allowed_origins text[] not null,
  created_by uuid,
  created_at timestamptz not null default now(),
  disabled_at timestamptz,
  version integer not null default 1, -- what If-Match names; the questions of a form stay as they are
  retention_months integer not null default 24 check (retention_months between 1 and 120), -- of its submissions
  introduction text not null default '',
  thank_you text not null default '',
  lang text not null default 'en' check (lang <> ''),
  primary key (tenant_id, id)
);
create index forms_id on resource.forms (id);
create index forms_page on resource.forms (tenant_id, created_at desc, id desc);

-- Someone who wrote to the workspace. One e-mail address is one supporter; who left none is one for each submission.
create table resource.supporters (
  id uuid not null,
  tenant_id uuid not null,
  email text check (email = lower(email)),
  phone text,
  name text,
  created_at timestamptz not null default now(),
  primary key (tenant_id, id)
);
create unique index supporters_by_email on resource.supporters (tenant_id, email);
create index supporters_id on resource.supporters (id);
create index supporters_page on resource.supporters (tenant_id, created_at desc, id desc);

-- Records become visible in the order of their times. Each list (the programmes and the forms of a workspace, the
-- submissions of a form) has one row that a writer locks, takes the next moment under, and keeps locked until it
-- commits. So a time is later than every time of the list that could be read before. The row itself never changes, so
-- that it does not grow dead versions while a long transaction, such as a backup, is open.
create table resource.list_locks (
  tenant_id uuid not null,
  list text not null, -- 'programmes', 'forms', or the id of the form whose submissions are meant
  -- The last time at which a submission of the form ended that was more than 30 days old. With it, next_moment and the lists of
  -- changed submissions need not read all months.
  late_at timestamptz,
  primary key (tenant_id, list)
);

-- When a workspace had its turn last: the worker takes an import of the workspace whose turn is longest ago. It locks
-- the row while the import is processed, so that one workspace has one worker at most.
create table resource.import_turns (
  tenant_id uuid primary key,
  last_at timestamptz not null
);

-- Supporters of whom a submission was deleted, and when: a supporter without submissions is deleted some time after the
-- last one.
create table resource.supporters_left (
  supporter_id uuid not null,
  since timestamptz not null default now(),
  tenant_id uuid not null,
  primary key (tenant_id, supporter_id),
  constraint supporters_left_supporter foreign key (tenant_id, supporter_id)
    references resource.supporters (tenant_id, id) on delete cascade
);
create index supporters_left_by_time on resource.supporters_left (since);

-- consents: field, version of the notice, whether it was given. trapped: a field that people do not see was filled in.
create table resource.submissions (
  id uuid not null,
  tenant_id uuid not null,
  form_id uuid not null,
  token_id uuid not null,
  answers jsonb not null,
  consents jsonb not null,
  trapped boolean not null,
  status text not null default 'accepted',
  reasons jsonb not null default '[]',
  supporter_id uuid,
  created_at timestamptz not null default now(),
  finished_at timestamptz,
  primary key (tenant_id, id, created_at),
  constraint submissions_form foreign key (tenant_id, form_id) references resource.forms (tenant_id, id),
  constraint submissions_supporter foreign key (tenant_id, supporter_id) references resource.supporters (tenant_id, id)
) partition by range (created_at);

grant select, insert, update, delete on all tables in schema resource to almoner_resourceapi;

-- When each kind of record was last worked on. A process claims a kind by its row.
create table resource.retention_runs (
  kind text primary key,
  started_at timestamptz not null,
  deleted bigint not null,
  complete boolean not null -- all that was due was deleted
);

grant select, insert, update on resource.retention_runs to almoner_resourceapi;
-- The service sees which migrations were applied: before the last one it knows of, it is not ready.
grant select on goose_resourceapi to almoner_resourceapi;

-- +goose StatementBegin
-- lock_external_ids makes the transaction the only one that gives external ids in the workspace. The advisory lock is
-- that of the previous release, which does not lock the row.
create function resource.lock_external_ids(workspace uuid) returns void
  language plpgsql volatile set search_path = pg_catalog as $$
begin
  perform pg_advisory_xact_lock(hashtextextended('external ids of ' || workspace, 0));
  perform 1 from resource.list_locks l where l.tenant_id = workspace and l.list = 'external ids' for update;
  if not found then
    insert into resource.list_locks (tenant_id, list) values (workspace, 'external ids') on conflict do nothing;
    perform 1 from resource.list_locks l where l.tenant_id = workspace and l.list = 'external ids' for update;
  end if;
end
$$;

-- In a distributed database every node has a copy of forms and runs its trigger: only the coordinator writes the event.
create function resource.is_coordinator() returns boolean language plpgsql stable set search_path = pg_catalog as $$
declare
  coordinator boolean := true;
begin
  if to_regclass('pg_catalog.pg_dist_local_group') is not null then
    execute 'select groupid = 0 from pg_catalog.pg_dist_local_group' into coordinator;
  end if;
  return coordinator;
end
$$;

-- next_moment reads only the partitions of the last 40 days. Times before the last hour are not later than the clock,
-- and late_at has the time at which an older submission ended.
create function resource.next_moment(workspace uuid, list_name text, records integer default 1)
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

-- refuse_used_token refuses a token that was used in the previous month. A token is valid for an hour and for one form.
-- The transaction has locked the form's list (next_moment), so what was inserted with the token before is committed.
create function resource.refuse_used_token() returns trigger language plpgsql set search_path = pg_catalog as $$
begin
  if exists (select 1 from resource.submissions s where s.tenant_id = new.tenant_id and s.token_id = new.token_id
      and s.created_at > new.created_at - interval '1 day' and s.created_at < new.created_at) then
    raise unique_violation using message = 'the token was used in the previous month', table = 'submissions';
  end if;
  return new;
end
$$;

create function resource.note_late() returns trigger language plpgsql set search_path = pg_catalog as $$
begin
  update resource.list_locks set late_at = new.finished_at where tenant_id = new.tenant_id and list = new.form_id::text;
  return null;
end
$$;

-- make_submission_months adds the months that are missing. If the tables are in use, it adds none: a later call does.
create function resource.make_submission_months() returns void
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

-- drop_submission_month drops the oldest month that ended a month before a time, which is the shortest period of a
-- form, and that has no submission left. It returns null if there is no such month, or if submissions are in use: a
-- later call drops it.
create function resource.drop_submission_month(before timestamptz) returns integer
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
-- +goose StatementEnd

revoke all on all functions in schema resource from public;
grant execute on function resource.drop_submission_month, resource.is_coordinator, resource.lock_external_ids,
  resource.make_submission_months, resource.next_moment to almoner_resourceapi;

-- +goose StatementBegin
-- Notes of supporters without submissions name the workspace. There are few: retention deletes them.
create function resource.note_supporter_left() returns trigger language plpgsql as $$
begin
  insert into resource.supporters_left (tenant_id, supporter_id) values (old.tenant_id, old.supporter_id)
    on conflict (tenant_id, supporter_id) do update
      set since = excluded.since where supporters_left.since < excluded.since;
  return null;
end
$$;

-- Events of programmes, forms and submissions, in the transaction of each change (contract, section 6a). They are
-- stored by account.add_event. While the schema of authserver is older than this function, no events are written.
create function resource.note_event() returns trigger language plpgsql as $$
declare
  changed text[];
begin
  if to_regprocedure('account.add_event(uuid, text, uuid, text[])') is null then
    return null;
  end if;
  if tg_argv[0] = 'form' and not resource.is_coordinator() then
    return null;
  end if;
  if tg_op = 'INSERT' then
    perform account.add_event(new.tenant_id, tg_argv[0] || '.created', new.id, null);
  elsif tg_op = 'DELETE' then
    perform account.add_event(old.tenant_id, tg_argv[0] || '.deleted', old.id, null);
  else
    select array_agg(distinct field.value order by field.value) into changed
    from jsonb_each_text(tg_argv[1]::jsonb) field
    where to_jsonb(old) -> field.key is distinct from to_jsonb(new) -> field.key;
    if changed is not null then
      perform account.add_event(new.tenant_id, tg_argv[0] || '.updated', new.id, changed);
    end if;
  end if;
  return null;
end
$$;
-- +goose StatementEnd

create trigger note_event after insert or update or delete on resource.programmes
  for each row execute function resource.note_event('programme', '{"name": "name", "summary": "summary", "status": "status",
    "starts_on": "startsOn", "ends_on": "endsOn", "external_id": "externalId"}');
create trigger note_event after insert or update or delete on resource.forms
  for each row execute function resource.note_event('form',
    '{"lang": "lang", "title": "title", "fields": "fields", "thank_you": "thankYou",'
    ' "disabled_at": "enabled", "introduction": "introduction", "allowed_origins": "allowedOrigins", "retention_months": "retentionMonths"}');
create trigger note_event after insert or update or delete on resource.submissions
  for each row execute function resource.note_event('submission', '{"status": "status", "reasons": "reasons",
        "supporter_id": "supporterId"}');
create trigger note_supporter_left after delete on resource.submissions
  for each row when (old.supporter_id is not null) execute function resource.note_supporter_left();
create trigger note_late after update on resource.submissions
  for each row when (new.finished_at > new.created_at + interval '30 days' and old.finished_at is null)
  execute function resource.note_late();
create trigger refuse_used_token before insert on resource.submissions
  for each row when (extract(day from new.created_at at time zone 'UTC') = 1) execute function resource.refuse_used_token();

-- The first partition of the submissions ends with the current month or the next one. An index makes tokens unique
-- within a month. A token cannot be used in two months, because on the first day of a month refuse_used_token also
-- checks the previous month.
-- +goose StatementBegin
do $$
declare
  ends timestamptz := (date_trunc('month', now() at time zone 'UTC' + interval '20 days') + interval '1 month') at time zone 'UTC';
begin
  create table resource.submissions_0000 (
    like resource.submissions including defaults,
    primary key (tenant_id, id, created_at),
    constraint submissions_token unique (tenant_id, token_id),
    constraint submissions_status_check check (status in ('accepted', 'processed', 'rejected')),
    constraint submissions_check check ((status = 'accepted') = (finished_at is null)),
    constraint submissions_check1 check ((status = 'processed') = (supporter_id is not null))
  ) with (autovacuum_vacuum_scale_factor = 0.05);
  create index submissions_page on resource.submissions_0000 (form_id, created_at desc, id desc);
  create index submissions_rejected on resource.submissions_0000 (form_id, created_at desc, id desc) where status = 'rejected';
  create index submissions_finished on resource.submissions_0000 (form_id, finished_at desc, created_at) where finished_at is not null;
  create index submissions_waiting on resource.submissions_0000 (tenant_id) where status = 'accepted';
  create index submissions_unlinked on resource.submissions_0000 (tenant_id) where supporter_id is null;
  create index submissions_by_supporter on resource.submissions_0000 (supporter_id) where supporter_id is not null;
  create index submissions_id on resource.submissions_0000 (id);
  execute format('alter table resource.submissions attach partition resource.submissions_0000 for values from (minvalue) to (%L)', ends);
  create table resource.submissions_9999 (
    like resource.submissions_0000 including defaults including constraints including indexes
  ) with (autovacuum_vacuum_scale_factor = 0.05);
  execute format('alter table resource.submissions attach partition resource.submissions_9999 for values from (%L) to (maxvalue)', ends);
end
$$;
-- +goose StatementEnd

-- The numbers of the migrations that made this schema before, for the programs of commit 0cfcdfce.
insert into goose_resourceapi (version_id, is_applied) select number, true from unnest(array[
  1, 2, 10, 12, 13, 30, 31, 32, 33, 34, 35, 36, 45, 46, 47, 48, 49, 60, 80, 81, 100, 110, 111, 112, 113, 114, 115, 116, 117, 118,
  119, 120, 121, 122, 123, 124, 125, 126, 130, 140, 150
]) with ordinality v (number, place) order by place;

-- +goose Down
select 1 / 0; -- forward only
