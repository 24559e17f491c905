-- Invitations to a workspace (contract, section 7). An address has at most one open invitation in a workspace. token_hash is the SHA-256 of
-- the token in the link; a renewed invitation has a new one. ended_at is set by an acceptance, a refusal, a withdrawal or a newer invitation.

-- +goose Up
create table account.invitations (
  id uuid primary key,
  tenant_id uuid not null references account.tenants,
  email text not null check (email = lower(email) and email like '%_@_%'),
  permissions text[] not null check (cardinality(permissions) > 0),
  invited_by uuid not null references account.users,
  token_hash bytea not null unique check (length(token_hash) = 32),
  created_at timestamptz not null default now(),
  expires_at timestamptz not null,
  ended_at timestamptz,
  outcome text check (outcome in ('accepted', 'declined', 'withdrawn', 'replaced')),
  check ((ended_at is null) = (outcome is null))
);
create unique index invitations_open on account.invitations (tenant_id, email) where ended_at is null;
create index invitations_by_inviter on account.invitations (invited_by, tenant_id) where ended_at is null;

grant select, insert, update, delete on account.invitations to almoner_authserver;

-- +goose Down
select 1 / 0; -- forward only
