-- Retention: records that are no longer needed are deleted in small batches (shared/retention).

-- +goose Up
-- How long the submissions of a form are kept.
alter table resource.forms add column retention_months integer not null default 24
  check (retention_months between 1 and 120);
create or replace trigger note_event after insert or update or delete on resource.forms
  for each row execute function resource.note_event('form', '{"title": "title", "fields": "fields",
    "allowed_origins": "allowedOrigins", "disabled_at": "enabled", "retention_months": "retentionMonths"}');

-- When each kind of record was last worked on. A process claims a kind by its row.
create table resource.retention_runs (
  kind text primary key,
  started_at timestamptz not null,
  deleted bigint not null,
  complete boolean not null -- all that was due was deleted
);

-- Supporters of whom a submission was deleted, and when: a supporter without submissions is deleted some time after the last one.
create table resource.supporters_left (
  supporter_id uuid primary key references resource.supporters on delete cascade,
  since timestamptz not null default now()
);
create index supporters_left_by_time on resource.supporters_left (since);
insert into resource.supporters_left (supporter_id)
  select id from resource.supporters s where not exists (select from resource.submissions where supporter_id = s.id);

-- +goose StatementBegin
create function resource.note_supporter_left() returns trigger language plpgsql as $$
begin
  insert into resource.supporters_left (supporter_id) values (old.supporter_id)
    on conflict (supporter_id) do update set since = excluded.since where supporters_left.since < excluded.since;
  return null;
end
$$;
-- +goose StatementEnd
create trigger note_supporter_left after delete on resource.submissions
  for each row when (old.supporter_id is not null) execute function resource.note_supporter_left();

grant select, insert, update on resource.retention_runs to almoner_resourceapi;
grant select, insert, update, delete on resource.supporters_left to almoner_resourceapi;

-- The space of deleted rows is reused soon, so that the table stays as large as what it keeps.
alter table resource.submissions set (autovacuum_vacuum_scale_factor = 0.05);

-- +goose Down
select 1 / 0; -- forward only
