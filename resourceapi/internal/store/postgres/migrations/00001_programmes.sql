-- The resource schema: everything that resourceapi owns. tenant_id names a workspace of the account schema without a
-- foreign key: the services share no table, and the gate has established that the workspace exists.

-- +goose Up
create schema resource;
revoke all on schema resource from public;

create table resource.programmes (
  id uuid primary key,
  tenant_id uuid not null,
  name text not null check (name <> ''),
  summary text not null default '',
  status text not null check (status in ('draft', 'active', 'completed', 'archived')),
  starts_on date,
  ends_on date,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  check (ends_on is null or starts_on is null or starts_on <= ends_on)
);
-- The order of the list (contract, section 6): newest first, ties by id.
create index programmes_page on resource.programmes (tenant_id, created_at desc, id desc);

grant usage on schema resource to almoner_resourceapi;
grant select, insert, update, delete on all tables in schema resource to almoner_resourceapi;

-- +goose Down
select 1 / 0; -- forward only
