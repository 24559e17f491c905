-- The account schema: everything that authserver owns. The owner of the database runs this; the services connect
-- as roles of their own with no more than they need. Roles belong to the whole server, so another database may have
-- made them already, perhaps at this very moment.

-- +goose Up
-- +goose StatementBegin
do $$
declare
  wanted text;
begin
  foreach wanted in array array['almoner_authserver', 'almoner_resourceapi'] loop
    begin
      if not exists (select from pg_roles where rolname = wanted) then
        execute format('create role %I nologin', wanted);
      end if;
    exception when duplicate_object or unique_violation then
      null;
    end;
  end loop;
end
$$;
-- +goose StatementEnd

create schema account;
revoke all on schema account from public;

create table account.organisations (
  id uuid primary key,
  name text not null check (name <> ''),
  created_at timestamptz not null default now()
);

create table account.tenants (
  id uuid primary key,
  organisation_id uuid not null references account.organisations,
  name text not null check (name <> ''),
  created_at timestamptz not null default now()
);

-- A module works in a workspace when it is enabled and provisioned (spec 1 and 7.2); no row means neither.
create table account.tenant_modules (
  tenant_id uuid not null references account.tenants,
  module text not null check (module in ('programmes', 'engage')),
  enabled boolean not null,
  provisioned boolean not null,
  primary key (tenant_id, module)
);

-- A feature is off where it has no row.
create table account.tenant_features (
  tenant_id uuid not null references account.tenants,
  feature text not null check (feature in ('llm_integration')),
  enabled boolean not null,
  primary key (tenant_id, feature)
);

create table account.users (
  id uuid primary key,
  email text not null check (email = lower(email) and email like '%_@_%'),
  name text not null check (name <> ''),
  password_hash text, -- argon2id in PHC form; null: this user signs in another way
  disabled_at timestamptz,
  created_at timestamptz not null default now(),
  constraint users_email_key unique (email)
);

create table account.memberships (
  tenant_id uuid not null references account.tenants,
  user_id uuid not null references account.users,
  permissions text[] not null,
  created_at timestamptz not null default now(),
  primary key (tenant_id, user_id)
);
create index memberships_by_user on account.memberships (user_id);

create table account.oauth_clients (
  id uuid primary key,
  kind text not null check (kind in ('confidential', 'connector', 'service')),
  tenant_id uuid references account.tenants, -- null for services alone
  name text not null check (name <> ''),
  redirect_uris text[] not null,
  required_permissions text[] not null,
  connector_platform text check (connector_platform in ('claude', 'chatgpt')),
  resource text,
  token_endpoint_auth_method text not null
    check (token_endpoint_auth_method in ('none', 'client_secret_json', 'client_secret_post', 'client_secret_basic')),
  created_by uuid references account.users,
  created_at timestamptz not null default now(),
  deleted_at timestamptz,
  check ((kind = 'service') = (tenant_id is null)),
  check ((kind = 'connector') = (connector_platform is not null and resource is not null)),
  check ((kind = 'connector') = (token_endpoint_auth_method = 'none'))
);
create index oauth_clients_by_tenant on account.oauth_clients (tenant_id, created_at, id) where deleted_at is null;

-- SHA-256 of each live secret; more than one while an old one is still good (contract, section 5).
create table account.client_secrets (
  client_id uuid not null references account.oauth_clients,
  hash bytea not null check (length(hash) = 32),
  created_at timestamptz not null default now(),
  expires_at timestamptz,
  primary key (client_id, hash)
);

create table account.personal_access_tokens (
  id uuid primary key,
  hash bytea not null unique check (length(hash) = 32),
  user_id uuid not null references account.users,
  tenant_id uuid not null references account.tenants,
  name text not null check (name <> ''),
  permissions text[] not null,
  created_at timestamptz not null default now(),
  expires_at timestamptz not null,
  revoked_at timestamptz,
  revoke_reason text,
  last_used_at timestamptz,
  replaces_id uuid references account.personal_access_tokens
);
create index personal_access_tokens_by_owner on account.personal_access_tokens (user_id, tenant_id, created_at);

-- The truth about grants (grants.md). generation, refresh_hash and last_used_at change at every refresh: no index on
-- them, and room in each page, so that the update stays within it (HOT).
create table account.grants (
  id uuid primary key,
  kind text not null check (kind in ('confidential', 'connector')),
  client_id uuid not null references account.oauth_clients,
  user_id uuid not null references account.users,
  tenant_id uuid not null references account.tenants,
  permissions text[] not null,
  resource text not null,
  state text not null check (state in ('pending', 'active', 'revoked')),
  generation integer not null default 0,
  refresh_hash bytea,
  approvals integer not null default 1, -- of this one consent: the last one's code counts
  code_binding bytea, -- one hash over the code, its redirect URI and its challenge: tells a reuse from a guess
  created_at timestamptz not null default now(),
  last_used_at timestamptz,
  ends_at timestamptz not null,
  revoked_at timestamptz,
  revoke_reason text,
  check ((state = 'revoked') = (revoked_at is not null))
) with (fillfactor = 70);
create index grants_by_user on account.grants (user_id, tenant_id);
create index grants_by_client on account.grants (client_id);

-- Private keys are sealed under a key from the configuration (shared/seal); the public half is what JWKS serves.
create table account.signing_keys (
  kid text primary key,
  public_jwk jsonb not null,
  private_sealed bytea not null,
  state text not null check (state in ('next', 'current', 'retired', 'removed')),
  created_at timestamptz not null default now(),
  activated_at timestamptz,
  retired_at timestamptz
);
create unique index signing_keys_one_current on account.signing_keys (state) where state = 'current';

-- Browser sessions. token and data are those of alexedwards/scs (the token hashed); sign_ins says whose they are.
create table account.sessions (
  token text primary key,
  data bytea not null,
  expiry timestamptz not null
);
create index sessions_by_expiry on account.sessions (expiry);

create table account.sign_ins (
  id uuid primary key,
  user_id uuid not null references account.users,
  created_at timestamptz not null default now(),
  last_seen_at timestamptz not null default now(),
  expires_at timestamptz not null,
  ended_at timestamptz,
  method text not null,
  address text not null,
  user_agent text not null
);
create index sign_ins_by_user on account.sign_ins (user_id, created_at);

-- Append-only: authserver may insert and read, nobody but the owner may change.
create table account.audit_events (
  id uuid primary key,
  at timestamptz not null default now(),
  tenant_id uuid references account.tenants,
  user_id uuid references account.users, -- whom it concerns
  actor text not null,                   -- user:<id>, client:<id>, admin, system
  action text not null,                  -- grant.revoked, client.registered, …
  subject text not null,                 -- what was acted on: grant:<id>, client:<id>, …
  detail jsonb not null default '{}',
  request_id text not null default ''
);
create index audit_events_by_tenant on account.audit_events (tenant_id, at desc, id desc);
create index audit_events_by_user on account.audit_events (user_id, at desc, id desc);

-- +goose StatementBegin
-- The standing of a credential in a workspace, as of now: what the credential is, whether it still counts, what its
-- user may do there, and in which state the module is. One call answers the whole gate (contract, section 6).
-- Exactly one of pat_hash and grant_id is given. There is no row when the credential is unknown.
create function account.standing(pat_hash bytea, grant_id uuid, tenant uuid, module_name text)
returns table (
  credential_id uuid,
  kind text,                      -- personal_access_token, confidential, connector
  state text,                     -- active, pending, revoked, expired, user_disabled
  user_id uuid,
  client_id uuid,                 -- null for a personal access token
  credential_tenant uuid,
  credential_permissions text[],
  resource text,                  -- null for a personal access token
  ends_at timestamptz,
  member boolean,                 -- of the workspace asked for
  member_permissions text[],
  llm_integration boolean,
  module_enabled boolean,
  module_provisioned boolean
)
language plpgsql stable parallel safe security definer
set search_path = account, pg_temp
as $$
begin
  if pat_hash is not null then
    return query
      select p.id, 'personal_access_token'::text,
        case when p.revoked_at is not null then 'revoked'
             when p.expires_at <= now() then 'expired'
             when u.disabled_at is not null then 'user_disabled'
             else 'active' end,
        p.user_id, null::uuid, p.tenant_id, p.permissions, null::text, p.expires_at,
        m.user_id is not null, coalesce(m.permissions, '{}'),
        coalesce(f.enabled, false), coalesce(d.enabled, false), coalesce(d.provisioned, false)
      from personal_access_tokens p
      join users u on u.id = p.user_id
      left join memberships m on m.tenant_id = coalesce(tenant, p.tenant_id) and m.user_id = p.user_id
      left join tenant_features f on f.tenant_id = coalesce(tenant, p.tenant_id) and f.feature = 'llm_integration'
      left join tenant_modules d on d.tenant_id = coalesce(tenant, p.tenant_id) and d.module = module_name
      where p.hash = pat_hash;
  else
    return query
      select g.id, g.kind,
        case when g.state <> 'active' then g.state
             when g.ends_at <= now() then 'expired'
             when u.disabled_at is not null then 'user_disabled'
             else 'active' end,
        g.user_id, g.client_id, g.tenant_id, g.permissions, g.resource, g.ends_at,
        m.user_id is not null, coalesce(m.permissions, '{}'),
        coalesce(f.enabled, false), coalesce(d.enabled, false), coalesce(d.provisioned, false)
      from grants g
      join users u on u.id = g.user_id
      left join memberships m on m.tenant_id = coalesce(tenant, g.tenant_id) and m.user_id = g.user_id
      left join tenant_features f on f.tenant_id = coalesce(tenant, g.tenant_id) and f.feature = 'llm_integration'
      left join tenant_modules d on d.tenant_id = coalesce(tenant, g.tenant_id) and d.module = module_name
      where g.id = grant_id;
  end if;
end
$$;

-- Notes that credentials were used: batched by the callers, off the request path, and coarse (an hour), so that a busy
-- token costs one write an hour.
create function account.note_use(pats uuid[], grant_ids uuid[])
returns void
language sql volatile security definer
set search_path = account, pg_temp
as $$
  update personal_access_tokens set last_used_at = now()
    where id = any (pats) and (last_used_at is null or last_used_at < now() - interval '1 hour');
  update grants set last_used_at = now()
    where id = any (grant_ids) and (last_used_at is null or last_used_at < now() - interval '1 hour');
$$;
-- +goose StatementEnd

revoke all on function account.standing, account.note_use from public;

grant usage on schema account to almoner_authserver, almoner_resourceapi;
grant execute on function account.standing, account.note_use to almoner_authserver, almoner_resourceapi;
grant select, insert, update, delete on all tables in schema account to almoner_authserver;
revoke update, delete on account.audit_events from almoner_authserver;

-- +goose Down
select 1 / 0; -- forward only
