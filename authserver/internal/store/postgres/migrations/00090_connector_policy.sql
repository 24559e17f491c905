-- What connectors may be given in a workspace, at most. A workspace without a row never chose: everything that connectors may have.

-- +goose Up
create table account.connector_policies (
  tenant_id uuid primary key references account.tenants,
  platforms text[] not null check (platforms <@ array['claude', 'chatgpt', 'other']),
  permissions text[] not null check (permissions <> '{}'),
  days integer not null check (days between 1 and 30),
  changed_at timestamptz not null default now()
);
grant select, insert, update, delete on account.connector_policies to almoner_authserver;

-- When a policy last took something from the grant.
alter table account.grants add column narrowed_at timestamptz;

-- The grants of a workspace, by application and the latest first. None of these change at a refresh, which stays a HOT update.
create index grants_by_tenant on account.grants (tenant_id, client_id, created_at desc);

-- +goose Down
select 1 / 0; -- forward only
