-- What writes need: versions for If-Match, remembered answers for Idempotency-Key, and imports.

-- +goose Up
alter table resource.programmes add column version integer not null default 1;

-- The list filtered by status, in the order of the list.
create index programmes_page_by_status on resource.programmes (tenant_id, status, created_at desc, id desc);

-- Search in any case must not depend on the database's locale, which may know the letters of ASCII alone.
create collation resource.any_case (provider = icu, locale = 'und');

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
  id uuid primary key,
  tenant_id uuid not null,
  user_id uuid not null,
  content text,
  status text not null default 'accepted' check (status in ('accepted', 'processed', 'rejected')),
  imported integer not null default 0,
  errors jsonb not null default '[]',
  created_at timestamptz not null default now(),
  try_at timestamptz not null default now(),
  finished_at timestamptz,
  check ((status = 'accepted') = (content is not null)),
  check ((status = 'accepted') = (finished_at is null))
);
create index imports_waiting on resource.imports (try_at) where status = 'accepted';

grant select, insert, update, delete on resource.idempotency_keys, resource.imports to almoner_resourceapi;

-- +goose Down
select 1 / 0; -- forward only
