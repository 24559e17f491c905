-- Requests of users who asked the administrators of a workspace for access: the last one of each user in a workspace.
-- The administrator's form is filled in from it. Rows are deleted after 30 days.

-- +goose Up
create table account.access_requests (
  user_id uuid not null references account.users on delete cascade,
  tenant_id uuid not null references account.tenants on delete cascade,
  permissions text[] not null,
  application text not null,
  member boolean not null, -- the user was a member
  asked_at timestamptz not null default now(),
  primary key (user_id, tenant_id)
);
create index access_requests_by_tenant on account.access_requests (tenant_id, asked_at);

grant select, insert, update, delete on account.access_requests to almoner_authserver;

-- +goose Down
select 1 / 0; -- forward only
