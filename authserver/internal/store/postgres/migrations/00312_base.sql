-- The account schema: everything that authserver owns, as it is in commit 0cfcdfce, the oldest version from which an
-- installation is upgraded in place. The owner of the database runs this; the services connect as roles of their own
-- with no more than they need. Roles belong to the whole server, so another database may have made them already,
-- perhaps at this very moment.

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
  created_at timestamptz not null default now(),
  second_factor_required boolean not null default false -- of the members
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
  email text not null check (email = lower(email) and email like '%_@_%') unique,
  name text not null check (name <> ''),
  password_hash text, -- argon2id in PHC form; null: this user signs in another way
  disabled_at timestamptz,
  created_at timestamptz not null default now(),
  -- The row of a deleted account stays: audit events, grants, tokens and applications name its id. It has no name, no address and
  -- no password, and is disabled.
  deleted_at timestamptz,
  constraint users_deleted_are_empty
    check (deleted_at is null or (disabled_at is not null and password_hash is null and email = id || '@deleted.invalid'))
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
  token_endpoint_auth_method text not null,
  created_by uuid references account.users,
  created_at timestamptz not null default now(),
  deleted_at timestamptz,
  -- Of clients that are known by their metadata documents: a copy of what each document said when it was read last. Such a client
  -- belongs to no workspace, and may ask for any of the deployment's resources (resource is '').
  metadata_url text check (metadata_url like 'https://%') unique,
  keys jsonb, -- of private_key_jwt: a JWK set
  keys_url text, -- where that set was read, null where the document holds it
  document_read_at timestamptz,
  document_fresh_until timestamptz,
  constraint oauth_clients_owner_check check ((tenant_id is null) = (kind = 'service' or metadata_url is not null)),
  constraint oauth_clients_connector_check check ((kind = 'connector') = (resource is not null)
    and (connector_platform is null or kind = 'connector')
    and (kind <> 'connector' or connector_platform is not null or metadata_url is not null)),
  constraint oauth_clients_document_check check (metadata_url is null
    or (kind = 'connector' and resource = '' and document_read_at is not null and document_fresh_until is not null)),
  constraint oauth_clients_method_check check (token_endpoint_auth_method in
      ('none', 'client_secret_json', 'client_secret_post', 'client_secret_basic', 'private_key_jwt')
    and (kind = 'connector') = (token_endpoint_auth_method in ('none', 'private_key_jwt'))
    and (token_endpoint_auth_method = 'private_key_jwt') = (keys is not null)
    and (token_endpoint_auth_method <> 'private_key_jwt' or metadata_url is not null))
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
  hash bytea not null check (length(hash) = 32) unique,
  user_id uuid not null references account.users,
  tenant_id uuid not null references account.tenants,
  name text not null check (name <> ''),
  permissions text[] not null,
  created_at timestamptz not null default now(),
  expires_at timestamptz not null,
  revoked_at timestamptz,
  revoke_reason text,
  last_used_at timestamptz,
  replaces_id uuid references account.personal_access_tokens,
  former_ended_at timestamptz, -- when its first use ended those that it replaces; null: it was not used yet
  expiry_mailed_at timestamptz -- when its owner was told that it is about to expire; null: not yet
);
create index personal_access_tokens_by_end on account.personal_access_tokens (expires_at);
create index personal_access_tokens_by_owner on account.personal_access_tokens (user_id, tenant_id, created_at);
create index personal_access_tokens_by_replaced on account.personal_access_tokens (replaces_id) where replaces_id is not null;
create index personal_access_tokens_to_mail on account.personal_access_tokens (expires_at)
  where expiry_mailed_at is null and revoked_at is null;

-- The truth about grants (grants.md). generation, refresh_hash and last_used_at change at every refresh: no index on
-- them, and room in each page, so that the update stays within it (HOT).
create table account.grants (
  id uuid not null,
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
  narrowed_at timestamptz, -- when a policy last took something from the grant
  first_used_at timestamptz, -- of an access token; no index: note_use is a HOT update
  -- A try that was answered with 503 is taken back: in Postgres at once, and in Redis before the grant's next decision, which
  -- learns the nonce from here (grants.md, G10). Grants of which nothing was ever given up take no more room.
  given_up text[],
  -- The tries that took a grant to its current generation: a repeated request joins the one that it repeats, and the step is
  -- reverted only when each of them was given up (grants.md, G10 and G11).
  taken_by text[],
  -- What is known of the request that ended a grant by presenting a used code or refresh token again: whether its successor had
  -- been used, how long before, and the shortened network and User-Agent (grant.Ending). Null for grants that ended otherwise.
  ending jsonb,
  -- When the current refresh token was issued. last_used_at is not exact: requests to the API change it too. Null for pending grants.
  renewed_at timestamptz,
  check ((state = 'revoked') = (revoked_at is not null)),
  primary key (tenant_id, id)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
create index grants_by_client on account.grants (client_id);
create index grants_by_creation on account.grants (tenant_id, created_at desc, id desc);
create index grants_by_end on account.grants (ends_at);
-- Finds a grant by its id alone, for operators. It is unique only for programs before `authserver migrate --finish`,
-- which replaces it with grants_located, which is not unique.
create unique index grants_by_id on account.grants (id);
create index grants_by_tenant on account.grants (tenant_id, client_id, created_at desc);
create index grants_by_user on account.grants (user_id, tenant_id);

-- Private keys are sealed under a key from the configuration (shared/seal); the public half is what JWKS serves.
create table account.signing_keys (
  kid text primary key,
  public_jwk jsonb not null,
  private_sealed bytea not null,
  state text not null check (state in ('next', 'current', 'retired', 'removed')),
  created_at timestamptz not null default now(),
  activated_at timestamptz,
  retired_at timestamptz,
  removed_at timestamptz -- set by note_removed_key
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
  user_agent text not null,
  -- When a sign-in with a password was completed with a second factor: a code of an authenticator app, a passkey, or the first
  -- one that the user set up.
  second_factor_at timestamptz
);
create index sign_ins_by_user on account.sign_ins (user_id, created_at);

-- Ways to sign in besides the password: passkeys, and an account at an upstream OpenID Connect provider.
create table account.passkeys (
  id uuid primary key,
  user_id uuid not null references account.users,
  name text not null check (name <> ''),
  credential_id bytea not null check (length(credential_id) between 1 and 1023) unique,
  public_key bytea not null, -- COSE_Key (RFC 9052, section 7), as the authenticator made it
  sign_count bigint not null check (sign_count >= 0),
  aaguid bytea not null,
  transports text[] not null,
  backup_eligible boolean not null,
  backed_up boolean not null,
  created_at timestamptz not null default now(),
  last_used_at timestamptz,
  copied_at timestamptz -- when its counter first went back: it is refused from then on
);
create index passkeys_by_user on account.passkeys (user_id, created_at, id);

-- Who a user is at another provider. A user has one account there at most, and an account there belongs to one user.
create table account.identities (
  issuer text not null,
  subject text not null,
  user_id uuid not null references account.users,
  created_at timestamptz not null default now(),
  constraint identities_one_of_each_issuer unique (user_id, issuer),
  primary key (issuer, subject)
);

-- What was begun at a browser and waits for its answer, for minutes. Both columns that find it are hashes.
create table account.ceremonies (
  secret_hash bytea primary key check (length(secret_hash) = 32),
  binding_hash bytea not null check (length(binding_hash) = 32),
  purpose text not null,
  data bytea not null,
  expires_at timestamptz not null
);
create index ceremonies_by_expiry on account.ceremonies (expires_at);

-- What connectors may be given in a workspace, at most. A workspace without a row never chose: everything that
-- connectors may have.
create table account.connector_policies (
  tenant_id uuid primary key references account.tenants,
  platforms text[] not null check (platforms <@ array['claude', 'chatgpt', 'other']),
  permissions text[] not null check (permissions <> '{}'),
  days integer not null check (days between 1 and 30),
  changed_at timestamptz not null default now()
);

-- How far connectors got. Most of it is read off the grants and their events; what stopped before there was a grant is
-- kept here: one row for each connector, person, reason and clock hour, which later ones of that hour bring up to date.
create table account.connection_stops (
  id uuid not null,
  tenant_id uuid not null references account.tenants,
  client_id uuid not null references account.oauth_clients,
  user_id uuid references account.users, -- null: nobody was signed in, or it cannot be known
  stray boolean not null, -- a token request that belongs to no approval known here; otherwise an authorization request
  outcome text not null check (outcome in ('waiting', 'refused', 'denied')),
  reason text not null,
  request_id text not null,
  at timestamptz not null default now(),
  primary key (tenant_id, id)
);
create index connection_stops_by_client on account.connection_stops (client_id);
create index connection_stops_by_tenant on account.connection_stops (tenant_id, at desc, id desc);
create index connection_stops_by_time on account.connection_stops (at);
create index connection_stops_latest on account.connection_stops (tenant_id, client_id, at desc);
create unique index connection_stops_once on account.connection_stops
  (tenant_id, client_id, coalesce(user_id, '00000000-0000-0000-0000-000000000000'), stray, reason, date_trunc('hour', at at time zone 'UTC'));

-- Invitations to a workspace (contract, section 7). An address has at most one open invitation in a workspace.
-- token_hash is the SHA-256 of the token in the link; a renewed invitation has a new one. ended_at is set by an
-- acceptance, a refusal, a withdrawal or a newer invitation.
create table account.invitations (
  id uuid not null,
  tenant_id uuid not null references account.tenants,
  email text not null check (email = lower(email) and email like '%_@_%'),
  permissions text[] not null check (cardinality(permissions) > 0),
  invited_by uuid not null references account.users,
  token_hash bytea not null check (length(token_hash) = 32) unique,
  created_at timestamptz not null default now(),
  expires_at timestamptz not null,
  ended_at timestamptz,
  outcome text check (outcome in ('accepted', 'declined', 'withdrawn', 'replaced')),
  check ((ended_at is null) = (outcome is null)),
  primary key (tenant_id, id)
);
create index invitations_by_inviter on account.invitations (invited_by, tenant_id) where ended_at is null;
create unique index invitations_open on account.invitations (tenant_id, email) where ended_at is null;

-- A link is good once and until its end. It is found by the hash of its token.
create table account.password_resets (
  token_hash bytea primary key check (length(token_hash) = 32),
  user_id uuid not null references account.users,
  created_at timestamptz not null default now(),
  expires_at timestamptz not null,
  used_at timestamptz, -- also set when another link of the user was used, or the password was changed
  -- A link that an operator made may remove passkeys that a workspace requires.
  by_operator boolean not null default false
);
create index password_resets_by_user on account.password_resets (user_id, created_at);

-- A row turns the mails of a kind off. Mails about security are sent in any case.
create table account.unwanted_mails (
  user_id uuid not null references account.users,
  kind text not null,
  primary key (user_id, kind)
);

-- A row makes sign-ins and reauthentications with the user's password require a code.
create table account.authenticators (
  user_id uuid primary key references account.users,
  secret bytea not null, -- sealed with ALMONER_KEYS
  last_step bigint not null, -- the time step of the last accepted code: each code is good once
  created_at timestamptz not null default now()
);

-- Unused recovery codes. A used one is deleted.
create table account.recovery_codes (
  user_id uuid not null references account.authenticators (user_id) on delete cascade,
  code_hash bytea not null check (length(code_hash) = 32),
  primary key (user_id, code_hash)
);

-- The invitations that were sent within the last 24 hours, for the limits per inviter, workspace and address
-- (membership/limits.go). Older rows are deleted. The address is a hash: the table outlives the invitation.
create table account.invitation_messages (
  tenant_id uuid not null,
  inviter_id uuid not null,
  email_hash bytea not null check (length(email_hash) = 32),
  sent_at timestamptz not null default now(),
  id uuid not null default gen_random_uuid(),
  primary key (tenant_id, id)
);
create index invitation_messages_by_address on account.invitation_messages (email_hash, sent_at);
create index invitation_messages_by_age on account.invitation_messages (sent_at);
create index invitation_messages_by_inviter on account.invitation_messages (inviter_id, sent_at);
create index invitation_messages_by_tenant on account.invitation_messages (tenant_id, sent_at);

-- Requests of users who asked the administrators of a workspace for access: the last one of each user in a workspace.
-- The administrator's form is filled in from it. Rows are deleted after 30 days.
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

-- Requests of users to change their e-mail address. The address changes when both links were confirmed: the one to the
-- old address and the one to the new. A user has at most one open request. The links are found by the hashes of their
-- tokens.
create table account.email_changes (
  id uuid primary key,
  user_id uuid not null references account.users,
  old_email text not null,
  new_email text not null check (new_email = lower(new_email) and new_email like '%_@_%'),
  old_token_hash bytea not null check (length(old_token_hash) = 32) unique,
  new_token_hash bytea not null check (length(new_token_hash) = 32) unique,
  created_at timestamptz not null default now(),
  expires_at timestamptz not null,
  old_confirmed_at timestamptz,
  new_confirmed_at timestamptz,
  ended_at timestamptz,
  outcome text check (outcome in ('changed', 'stopped', 'replaced', 'taken')),
  check ((ended_at is null) = (outcome is null))
);
create index email_changes_by_address on account.email_changes (new_email, created_at);
create index email_changes_by_user on account.email_changes (user_id, created_at);
create unique index email_changes_open on account.email_changes (user_id) where ended_at is null;

-- Webhooks: endpoints that resourceapi's worker sends the events of a workspace to (contract, section 6a). A workspace
-- manages them with resourceapi's API or on authserver's page, so both services read and write these tables.
create table account.webhooks (
  id uuid not null,
  tenant_id uuid not null references account.tenants on delete cascade,
  -- who added it, or enabled it last: events that this user may read are sent
  user_id uuid not null references account.users on delete cascade,
  url text not null check (octet_length(url) <= 2048),
  types text[] not null check (cardinality(types) > 0),
  secret bytea not null, -- sealed for resourceapi (shared/webhook)
  secret_key bytea not null, -- the public key that it is sealed with
  enabled boolean not null default true,
  reason text check (reason in ('user', 'failing', 'gone', 'permission')), -- why it is not enabled
  disabled_at timestamptz,
  mail_due boolean not null default false, -- authserver still has to tell the user that it was disabled
  position bigint not null,
  failures integer not null default 0, -- attempts since the last success
  failing_since timestamptz,
  next_try_at timestamptz not null default now(),
  tried_at timestamptz,
  created_at timestamptz not null,
  secret_id uuid, -- of the request that replaced the secret
  former_secret bytea, -- sealed like secret
  former_secret_key bytea,
  former_until timestamptz,
  -- An endpoint gets the personal data of submissions and members if its user asked for it. The column holds that user: if
  -- another user enables the endpoint, it no longer equals user_id, and no personal data
  -- is sent.
  personal_data_for uuid,
  check (enabled = (reason is null) and enabled = (disabled_at is null)),
  primary key (tenant_id, id)
);
create index webhooks_by_former_secret on account.webhooks (former_until) where former_until is not null;
create index webhooks_by_user on account.webhooks (user_id);
create index webhooks_by_workspace on account.webhooks (tenant_id, created_at desc, id desc);
create index webhooks_enabled on account.webhooks (tenant_id) where enabled;
create index webhooks_with_mail on account.webhooks (id) where mail_due;

-- The log: one row for each attempt, and for each test or repeated delivery that waits. The body is made again from the
-- event.
create table account.webhook_deliveries (
  id uuid not null,
  webhook_id uuid not null,
  created_at timestamptz not null default clock_timestamp(),
  cause text not null check (cause in ('event', 'resend', 'test')),
  type text not null,
  sequence bigint, -- null for a test
  tried_at timestamptz, -- null while it waits
  status smallint, -- of the response
  problem text, -- why it was not accepted, or null
  took_ms integer,
  tenant_id uuid not null,
  check ((sequence is null) = (cause = 'test')),
  primary key (tenant_id, id),
  constraint webhook_deliveries_webhook foreign key (tenant_id, webhook_id) references account.webhooks (tenant_id, id) on delete cascade
);
create index webhook_deliveries_by_age on account.webhook_deliveries (created_at);
create unique index webhook_deliveries_by_id on account.webhook_deliveries (id); -- `authserver migrate --finish` drops it
create index webhook_deliveries_list on account.webhook_deliveries (webhook_id, created_at desc, id desc);
create index webhook_deliveries_waiting on account.webhook_deliveries (webhook_id, created_at) where tried_at is null;

-- The first answers of the account API's writes, for 24 hours (contract, section 6). The row is made before the effect,
-- in its transaction. The body is sealed (package seal), since it may have a secret.
create table account.idempotency_keys (
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
create index idempotency_keys_by_age on account.idempotency_keys (created_at);

grant select, insert, update, delete on all tables in schema account to almoner_authserver;
grant update (second_factor_required) on account.tenants to almoner_authserver;
grant select, insert, update, delete on account.webhooks, account.webhook_deliveries to almoner_resourceapi;

-- Append-only: authserver may insert and read, nobody but the owner may change. The time of an event is the server's
-- clock when the row is inserted: authserver may insert every column but at. A migration that adds a column has to
-- grant insert on that column too. The workspace of an event outside workspaces is the nil UUID. There are no
-- references to workspaces and users: none of these is ever deleted, and dropping a month of events would lock
-- account.users.
create table account.audit_events (
  id uuid not null,
  at timestamptz not null default clock_timestamp(),
  tenant_id uuid not null,
  user_id uuid, -- whom it concerns
  actor text not null, -- user:<id>, client:<id>, admin, system
  action text not null, -- grant.revoked, client.registered, …
  subject text not null, -- what was acted on: grant:<id>, client:<id>, …
  detail jsonb not null default '{}',
  request_id text not null default '',
  primary key (tenant_id, at, id)
) partition by range (at);
create index audit_events_by_time on account.audit_events (at);
create index audit_events_by_subject on account.audit_events (subject, at desc);
create index audit_events_by_request on account.audit_events (tenant_id, request_id, at desc, id desc) where request_id <> '';
create index audit_events_by_user on account.audit_events (user_id, at desc, id desc);

-- Events: what changed in a workspace, for integrations (contract, section 6a). Each change writes its event in its own
-- transaction, without waiting for other changes of the workspace. The sequence is given later, when events are read:
-- only to committed events, under a lock of the workspace's counter. So no event appears with a sequence below one that
-- could be read already.
create table account.events (
  id bigint not null generated always as identity,
  tenant_id uuid not null,
  type text not null,
  data jsonb not null, -- ids and names of fields, never values
  created_at timestamptz not null default clock_timestamp(),
  sequence bigint, -- null until the event is first read
  primary key (tenant_id, id, created_at)
) partition by range (created_at);

create table account.event_sequences (
  tenant_id uuid primary key,
  last bigint not null
);

-- Public keys of resourceapi. Secrets are sealed with the one that was published last.
create table account.webhook_keys (
  public_key bytea primary key check (length(public_key) = 32),
  published_at timestamptz not null default clock_timestamp()
);

-- When each kind of record was last worked on. A process claims a kind by its row.
create table account.retention_runs (
  kind text primary key,
  started_at timestamptz not null,
  deleted bigint not null,
  complete boolean not null -- all that was due was deleted
);

-- Steps of upgrades that wait until no process of an earlier release is left. `authserver migrate --finish` takes them.
-- A row says that the step was taken. tokens_carry_workspace: codes contain the workspace of their grant, and so do the
-- refresh tokens that follow them. A new installation has no process of an earlier release.
create table account.finished_upgrades (
  name text primary key,
  finished_at timestamptz not null default now()
);

-- When a personal access token was last used, in a table of its own whose key has the workspace. In a distributed
-- database every node has a copy of the tokens, and an update of one waits for all nodes; the uses of a workspace are
-- on one node.
create table account.token_uses (
  tenant_id uuid not null,
  token_id uuid not null references account.personal_access_tokens on delete cascade,
  used_at timestamptz not null,
  primary key (tenant_id, token_id)
);
create index token_uses_by_token on account.token_uses (token_id);

-- Approvals of consents are numbered before Redis is asked to accept their codes. The number of an approval that Redis
-- refuses is used up, and nothing else of it is stored (G12).
create sequence account.approval_numbers as integer;

grant usage on schema account to almoner_authserver, almoner_resourceapi;
grant usage on sequence account.approval_numbers to almoner_authserver;
grant select on account.events, account.finished_upgrades, account.token_uses, account.webhook_keys to almoner_authserver;
grant select, insert (id, tenant_id, user_id, actor, action, subject, detail, request_id) on account.audit_events to almoner_authserver;
grant select, insert, update on account.retention_runs to almoner_authserver;
grant select, insert, update on account.webhook_keys to almoner_resourceapi;
-- The service sees which migrations were applied: before the last one it knows of, it is not ready.
grant select on goose_authserver to almoner_authserver;

insert into account.finished_upgrades (name) values ('tokens_carry_workspace');

-- +goose StatementBegin
-- A public form is asked for without a credential, so account.standing has nothing to go by: this tells resourceapi
-- whether a module works in a workspace, and nothing else about it.
create function account.module_state(tenant uuid, module_name text)
returns table (enabled boolean, provisioned boolean) -- no row: neither
language sql stable parallel safe security definer
set search_path = account, pg_temp
as $$
  select m.enabled, m.provisioned from tenant_modules m where m.tenant_id = tenant and m.module = module_name;
$$;

-- What resourceapi asks besides account.standing, and seldom: who is connected, for the whoami tool of the MCP
-- endpoint, and what a client may ask for, when a token lacks a permission. The columns of account.standing are read by
-- position.
create function account.names(pat_hash bytea, asked_grant uuid) -- of the credential that account.standing was asked about
returns table (
  user_name text,
  tenant_name text,
  credential_name text,          -- the client's, or what the personal access token was called
  created_at timestamptz         -- of the grant or the personal access token
)
language plpgsql stable parallel safe security definer
set search_path = account, pg_temp
as $$
begin
  if pat_hash is not null then
    return query
      select u.name, t.name, p.name, p.created_at
      from personal_access_tokens p join users u on u.id = p.user_id join tenants t on t.id = p.tenant_id
      where p.hash = pat_hash;
  else
    return query
      select u.name, t.name, c.name, g.created_at
      from grants g join users u on u.id = g.user_id join tenants t on t.id = g.tenant_id join oauth_clients c on c.id = g.client_id
      where g.id = asked_grant;
  end if;
end
$$;

-- What the client of a grant could be given in the grant's workspace, if it asked again.
create function account.askable(asked_grant uuid)
returns text[] -- null: no such grant, or its client is deleted
language sql stable parallel safe security definer
set search_path = account, pg_temp
as $$
  select array(
    select p from unnest(c.required_permissions) as p
    where g.kind <> 'connector' or l.tenant_id is null
      or p = any (l.permissions) and coalesce(c.connector_platform, 'other') = any (l.platforms))
  from grants g
  join oauth_clients c on c.id = g.client_id
  left join connector_policies l on l.tenant_id = g.tenant_id
  where g.id = asked_grant and c.deleted_at is null;
$$;

-- The standing of a credential in a workspace, as of now: what the credential is, whether it still counts, what its
-- user may do there, and in which state the module is. One call answers the whole gate (contract, section 6).
-- Exactly one of pat_hash and grant_id is given. There is no row when the credential is unknown.
create function account.standing(pat_hash bytea, grant_id uuid, tenant uuid, module_name text)
returns table (
  credential_id uuid,
  kind text,
  state text,
  user_id uuid,
  client_id uuid,
  credential_tenant uuid,
  credential_permissions text[],
  resource text,
  ends_at timestamptz,
  member boolean,
  member_permissions text[],
  llm_integration boolean,
  module_enabled boolean,
  module_provisioned boolean
)
language plpgsql stable parallel safe security definer
set search_path = account, pg_temp
as $$
begin
  return query
    select s.credential_id, s.kind, s.state, s.user_id, s.client_id, s.credential_tenant, s.credential_permissions, s.resource, s.ends_at,
      s.member, s.member_permissions, s.llm_integration, s.module_enabled, s.module_provisioned
    from standings(array[pat_hash], array[grant_id], array[tenant], array[module_name]) s;
end
$$;

-- The first use of a personal access token ends every token that it replaces, directly or through others that were
-- never used, before it is answered: account.standings says that a token has that to do, and its reader calls
-- account.end_replaced.
create function account.end_replaced(used uuid)
returns void
language plpgsql volatile security definer
set search_path = account, pg_temp
as $$
declare
  chain uuid[];
begin
  with recursive c as (
    select id, replaces_id, user_id from personal_access_tokens where id = used and former_ended_at is null
    union
    select old.id, old.replaces_id, old.user_id from c join personal_access_tokens old on old.id = c.replaces_id and old.user_id = c.user_id
  )
  select array_agg(id) into chain from c;
  -- In one order, so that two first uses cannot wait for one another.
  perform from personal_access_tokens where id = any (chain) order by id for no key update;
  with ended as (
    update personal_access_tokens set revoked_at = now(), revoke_reason = 'replaced'
    where id = any (chain) and id <> used and revoked_at is null
    returning id, tenant_id, user_id
  )
  insert into audit_events (id, tenant_id, user_id, actor, action, subject, detail)
    select gen_random_uuid(), tenant_id, user_id, 'system', 'token.revoked', 'token:' || id,
      jsonb_build_object('reason', 'replaced', 'successor', used)
    from ended;
  update personal_access_tokens set former_ended_at = now() where id = used and former_ended_at is null;
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
  -- Programs older than this file do not call end_replaced themselves.
  select end_replaced(id) from personal_access_tokens where id = any (pats) and replaces_id is not null and former_ended_at is null;
  update grants set first_used_at = coalesce(first_used_at, now()),
      last_used_at = case when last_used_at < now() - interval '1 hour' then now() else coalesce(last_used_at, now()) end
    where id = any (grant_ids) and (first_used_at is null or last_used_at is null or last_used_at < now() - interval '1 hour');
$$;

-- account.standings with five arguments also takes, for each access token, the identifier of the key that signed it,
-- and answers whether that key is still published. A key that an administrator removes is refused by the next request
-- of every process.
create function account.standings(pat_hashes bytea[], grant_ids uuid[], tenants uuid[], modules text[], kids text[])
returns table (
  place bigint,                   -- of the question, from 1 on; no row where there is no such credential
  credential_id uuid,
  kind text,                      -- personal_access_token, confidential, connector
  state text,                     -- active, pending, revoked, expired, user_disabled, key_removed
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
  module_provisioned boolean,
  replaces boolean                -- a personal access token whose first use has to end those that it replaces (account.end_replaced)
)
language plpgsql stable parallel safe security definer
set search_path = account, pg_temp
as $$
begin
  return query
    -- The arrays are in subqueries, so that no plan is better for knowing them and Postgres keeps the one that it has made. The limit has
    -- it look up each question by itself, by the keys: it never reads a table for all of them.
    select asked.place, answer.*
    from unnest((select pat_hashes), (select grant_ids), (select tenants), (select modules), (select kids))
      with ordinality asked (pat_hash, grant_id, tenant, module, kid, place)
    cross join lateral (
      select c.id, c.kind,
        case
          when c.state <> 'active' then c.state
          when u.disabled_at is not null then 'user_disabled'
          -- A null kid is a personal access token's, or comes from a program that does not say it. A kid of no stored key counts as removed.
          -- The keys do not depend on the question, so Postgres reads them once for all questions.
          when asked.kid is not null
            and asked.kid <> all (array(select k.kid from signing_keys k where k.state <> 'removed')) then 'key_removed'
          else 'active'
        end,
        c.user_id, c.client_id, c.tenant_id, c.permissions, c.resource, c.ends_at,
        m.user_id is not null, coalesce(m.permissions, '{}'),
        coalesce(f.enabled, false), coalesce(d.enabled, false), coalesce(d.provisioned, false), c.replaces
      from (
        select p.id, 'personal_access_token'::text kind,
          case when p.revoked_at is not null then 'revoked' when p.expires_at <= now() then 'expired' else 'active' end state,
          p.user_id, null::uuid client_id, p.tenant_id, p.permissions, null::text resource, p.expires_at ends_at,
          p.replaces_id is not null and p.former_ended_at is null replaces
        from personal_access_tokens p
        where p.hash = asked.pat_hash
        union all
        select g.id, g.kind,
          case when g.state = 'active' and g.ends_at <= now() then 'expired' else g.state end,
          g.user_id, g.client_id, g.tenant_id, g.permissions, g.resource, g.ends_at, false
        from grants g
        where g.id = asked.grant_id and asked.pat_hash is null
      ) c
      join users u on u.id = c.user_id
      left join memberships m on m.tenant_id = coalesce(asked.tenant, c.tenant_id) and m.user_id = c.user_id
      left join tenant_features f on f.tenant_id = coalesce(asked.tenant, c.tenant_id) and f.feature = 'llm_integration'
      left join tenant_modules d on d.tenant_id = coalesce(asked.tenant, c.tenant_id) and d.module = asked.module
      limit 1
    ) answer;
end
$$;

-- account.standing for several questions in one call, as a call costs Postgres several times what another question in
-- it does.
create function account.standings(pat_hashes bytea[], grant_ids uuid[], tenants uuid[], modules text[])
returns table (
  place bigint,
  credential_id uuid,
  kind text,
  state text,
  user_id uuid,
  client_id uuid,
  credential_tenant uuid,
  credential_permissions text[],
  resource text,
  ends_at timestamptz,
  member boolean,
  member_permissions text[],
  llm_integration boolean,
  module_enabled boolean,
  module_provisioned boolean
)
language plpgsql stable parallel safe security definer
set search_path = account, pg_temp
as $$
begin
  return query
    select s.place, s.credential_id, s.kind, s.state, s.user_id, s.client_id, s.credential_tenant, s.credential_permissions, s.resource,
      s.ends_at, s.member, s.member_permissions, s.llm_integration, s.module_enabled, s.module_provisioned
    from standings(pat_hashes, grant_ids, tenants, modules, null::text[]) s;
end
$$;

-- What a credential may read about itself: the names of account.names, and the e-mail address of its user.
create function account.profile(pat_hash bytea, asked_grant uuid)
returns table (
  user_name text,
  email text,
  tenant_name text,
  credential_name text -- the client's, or the name of the personal access token
)
language plpgsql stable parallel safe security definer
set search_path = account, pg_temp
as $$
begin
  if pat_hash is not null then
    return query
      select u.name, u.email::text, t.name, p.name
      from personal_access_tokens p join users u on u.id = p.user_id join tenants t on t.id = p.tenant_id
      where p.hash = pat_hash;
  else
    return query
      select u.name, u.email::text, t.name, c.name
      from grants g join users u on u.id = g.user_id join tenants t on t.id = g.tenant_id join oauth_clients c on c.id = g.client_id
      where g.id = asked_grant;
  end if;
end
$$;

-- resourceapi records in the audit log what it erased: which record, by whom, and how many submissions went with it. It
-- may record nothing else.
create function account.record_erasure(
  event uuid, tenant uuid, by_user uuid, what text, which uuid, submissions integer, request text
) returns void
language plpgsql volatile security definer
set search_path = account, pg_temp
as $$
begin
  if what not in ('programme', 'form', 'submission', 'supporter') then
    raise exception 'no kind of record that can be erased';
  end if;
  insert into audit_events (id, tenant_id, user_id, actor, action, subject, detail, request_id)
  values (event, tenant, by_user, 'user:' || by_user, what || '.erased', what || ':' || which,
    case when what in ('form', 'supporter') then jsonb_build_object('submissions', submissions) else '{}' end, request);
end
$$;

-- webhook_standing returns what the user of an endpoint may do in its workspace, or null if the user is disabled or no
-- member.
create function account.webhook_standing(webhook uuid) returns text[]
language sql stable security definer
set search_path = account, pg_temp
as $$
  select m.permissions from webhooks w join memberships m on m.tenant_id = w.tenant_id and m.user_id = w.user_id
  join users u on u.id = m.user_id
  where w.id = webhook and u.disabled_at is null
$$;

-- webhook_event returns one event, for a repeated delivery.
create function account.webhook_event(tenant uuid, asked bigint)
returns table (sequence bigint, type text, data jsonb, created_at timestamptz)
language sql stable security definer
set search_path = account, pg_temp
as $$
  select e.sequence, e.type, e.data, e.created_at from events e where e.tenant_id = tenant and e.sequence = asked
$$;

-- The functions that take a grant also take its workspace, which access tokens contain: a distributed Postgres then
-- reads one node.
create function account.standings(
  pat_hashes bytea[], grant_ids uuid[], grant_tenants uuid[], tenants uuid[], modules text[], kids text[]
) -- all of one length
returns table (
  place bigint,                   -- of the question, from 1 on; no row where there is no such credential
  credential_id uuid,
  kind text,                      -- personal_access_token, confidential, connector
  state text,                     -- active, pending, revoked, expired, user_disabled, key_removed
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
  module_provisioned boolean,
  replaces boolean                -- a personal access token whose first use has to end those that it replaces (account.end_replaced)
)
language plpgsql stable parallel safe security definer
set search_path = account, pg_temp
as $$
declare
  at timestamptz := now();
  pat bytea;
  asked uuid;
  owner uuid;
  tenant uuid;
  wanted text;
  signer text;
begin
  -- Several questions in one statement cost a third of what they cost one by one, but Citus, which has a table pg_dist_partition,
  -- refuses the lateral subquery. The two forms answer alike (TestStanding_BatchEqualsSingleQueries).
  if cardinality(pat_hashes) > 1 and to_regclass('pg_dist_partition') is null then
    return query
      -- The arrays are in subqueries, so that no plan is better for knowing them and Postgres keeps the one that it has made. The limit
      -- has it look up each question by itself, by the keys: it never reads a table for all of them.
      select question.place, answer.*
      from unnest((select pat_hashes), (select grant_ids), (select grant_tenants), (select tenants), (select modules), (select kids))
        with ordinality question (pat_hash, grant_id, grant_tenant, tenant_id, module, kid, place)
      cross join lateral (
        select c.id, c.kind,
          case
            when c.state <> 'active' then c.state
            when u.disabled_at is not null then 'user_disabled'
            -- A null kid is a personal access token's, or comes from a program that does not say it. A kid of no stored key counts as
            -- removed. The keys do not depend on the question, so Postgres reads them once for all questions.
            when question.kid is not null
              and question.kid <> all (array(select k.kid from signing_keys k where k.state <> 'removed')) then 'key_removed'
            else 'active'
          end,
          c.user_id, c.client_id, c.tenant_id, c.permissions, c.resource, c.ends_at,
          m.user_id is not null, coalesce(m.permissions, '{}'),
          coalesce(f.enabled, false), coalesce(d.enabled, false), coalesce(d.provisioned, false), c.replaces
        from (
          select p.id, 'personal_access_token'::text kind,
            case when p.revoked_at is not null then 'revoked' when p.expires_at <= at then 'expired' else 'active' end state,
            p.user_id, null::uuid client_id, p.tenant_id, p.permissions, null::text resource, p.expires_at ends_at,
            p.replaces_id is not null and p.former_ended_at is null replaces
          from personal_access_tokens p
          where p.hash = question.pat_hash
          union all
          select g.id, g.kind,
            case when g.state = 'active' and g.ends_at <= at then 'expired' else g.state end,
            g.user_id, g.client_id, g.tenant_id, g.permissions, g.resource, g.ends_at, false
          from grants g
          where g.tenant_id = question.grant_tenant and g.id = question.grant_id and question.pat_hash is null
        ) c
        join users u on u.id = c.user_id
        left join memberships m on m.tenant_id = coalesce(question.tenant_id, c.tenant_id) and m.user_id = c.user_id
        left join tenant_features f on f.tenant_id = coalesce(question.tenant_id, c.tenant_id) and f.feature = 'llm_integration'
        left join tenant_modules d on d.tenant_id = coalesce(question.tenant_id, c.tenant_id) and d.module = question.module
        limit 1
      ) answer;
    return;
  end if;
  for i in 1 .. coalesce(cardinality(pat_hashes), 0) loop
    pat := pat_hashes[i];
    tenant := tenants[i];
    wanted := modules[i];
    if pat is not null then
      return query
        select i::bigint, p.id, 'personal_access_token'::text,
          case
            when p.revoked_at is not null then 'revoked'
            when p.expires_at <= at then 'expired'
            when u.disabled_at is not null then 'user_disabled'
            else 'active'
          end,
          p.user_id, null::uuid, p.tenant_id, p.permissions, null::text, p.expires_at,
          m.user_id is not null, coalesce(m.permissions, '{}'),
          coalesce(f.enabled, false), coalesce(d.enabled, false), coalesce(d.provisioned, false),
          p.replaces_id is not null and p.former_ended_at is null
        from personal_access_tokens p
        join users u on u.id = p.user_id
        left join memberships m on m.tenant_id = coalesce(tenant, p.tenant_id) and m.user_id = p.user_id
        left join tenant_features f on f.tenant_id = coalesce(tenant, p.tenant_id) and f.feature = 'llm_integration'
        left join tenant_modules d on d.tenant_id = coalesce(tenant, p.tenant_id) and d.module = wanted
        where p.hash = pat;
    else
      asked := grant_ids[i];
      owner := grant_tenants[i];
      signer := kids[i];
      return query
        select i::bigint, g.id, g.kind,
          case
            when g.state <> 'active' then g.state
            when g.ends_at <= at then 'expired'
            when u.disabled_at is not null then 'user_disabled'
            when signer is not null
              and signer <> all (array(select k.kid from signing_keys k where k.state <> 'removed')) then 'key_removed'
            else 'active'
          end,
          g.user_id, g.client_id, g.tenant_id, g.permissions, g.resource, g.ends_at,
          m.user_id is not null, coalesce(m.permissions, '{}'),
          coalesce(f.enabled, false), coalesce(d.enabled, false), coalesce(d.provisioned, false), false
        from grants g
        join users u on u.id = g.user_id
        left join memberships m on m.tenant_id = coalesce(tenant, owner) and m.user_id = g.user_id
        left join tenant_features f on f.tenant_id = coalesce(tenant, owner) and f.feature = 'llm_integration'
        left join tenant_modules d on d.tenant_id = coalesce(tenant, owner) and d.module = wanted
        where g.tenant_id = owner and g.id = asked;
    end if;
  end loop;
end
$$;

create function account.names(pat_hash bytea, asked_grant uuid, owner uuid)
returns table (
  user_name text,
  tenant_name text,
  credential_name text,
  created_at timestamptz
)
language plpgsql stable parallel safe security definer
set search_path = account, pg_temp
as $$
begin
  if pat_hash is not null then
    return query
      select u.name, t.name, p.name, p.created_at
      from personal_access_tokens p join users u on u.id = p.user_id join tenants t on t.id = p.tenant_id
      where p.hash = pat_hash;
  else
    return query
      select u.name, t.name, c.name, g.created_at
      from grants g join users u on u.id = g.user_id join tenants t on t.id = g.tenant_id
      join oauth_clients c on c.id = g.client_id
      where g.tenant_id = owner and g.id = asked_grant;
  end if;
end
$$;

create function account.profile(pat_hash bytea, asked_grant uuid, owner uuid)
returns table (
  user_name text,
  email text,
  tenant_name text,
  credential_name text
)
language plpgsql stable parallel safe security definer
set search_path = account, pg_temp
as $$
begin
  if pat_hash is not null then
    return query
      select u.name, u.email::text, t.name, p.name
      from personal_access_tokens p join users u on u.id = p.user_id join tenants t on t.id = p.tenant_id
      where p.hash = pat_hash;
  else
    return query
      select u.name, u.email::text, t.name, c.name
      from grants g join users u on u.id = g.user_id join tenants t on t.id = g.tenant_id
      join oauth_clients c on c.id = g.client_id
      where g.tenant_id = owner and g.id = asked_grant;
  end if;
end
$$;

create function account.askable(asked_grant uuid, owner uuid)
returns text[] -- null: no such grant, or its client is deleted
language plpgsql stable parallel safe security definer
set search_path = account, pg_temp
as $$
declare
  required text[];
  connector boolean;
  platform text;
  limits connector_policies;
begin
  select c.required_permissions, g.kind = 'connector', coalesce(c.connector_platform, 'other')
    into required, connector, platform
    from grants g join oauth_clients c on c.id = g.client_id
    where g.tenant_id = owner and g.id = asked_grant and c.deleted_at is null;
  select * into limits from connector_policies l where l.tenant_id = owner;
  if required is null or not connector or limits.tenant_id is null then
    return required;
  end if;
  if platform <> all (limits.platforms) then
    return '{}';
  end if;
  return array(select p from unnest(required) as p where p = any (limits.permissions));
end
$$;

-- Deletions of old records that a distributed Postgres accepts: it locks rows of one workspace in one statement, and
-- has no ctid.
create function account.delete_grants(before timestamptz, most integer) returns integer
language plpgsql volatile
set search_path = account, pg_temp
as $$
declare
  owners uuid[];
  ids uuid[];
  ends timestamptz[];
  last_end timestamptz := '-infinity';
  last_id uuid := '00000000-0000-0000-0000-000000000000';
  due record;
  part integer;
  deleted integer := 0;
begin
  while deleted < most loop -- more than once if rows are locked, which are left out
    select array_agg(o.tenant_id), array_agg(o.id), array_agg(o.ends_at) into owners, ids, ends
    from (
      select g.tenant_id, g.id, g.ends_at from grants g
      where g.ends_at < before and (g.ends_at, g.id) > (last_end, last_id) order by g.ends_at, g.id limit most - deleted
    ) o;
    exit when ids is null;
    last_end := ends[cardinality(ends)];
    last_id := ids[cardinality(ids)];
    for due in
      select u.owner, array_agg(u.id) ids from unnest(owners, ids) u (owner, id) group by u.owner order by u.owner
    loop
      delete from grants d where d.tenant_id = due.owner and d.id = any (array(
        select g.id from grants g where g.tenant_id = due.owner and g.id = any (due.ids) and g.ends_at < before
        for update skip locked));
      get diagnostics part = row_count;
      deleted := deleted + part;
    end loop;
  end loop;
  return deleted;
end
$$;

-- A client is deleted after all its grants. Its row is locked before they are looked for, so that none can be added.
create function account.delete_clients(before timestamptz, most integer) returns integer
language plpgsql volatile
set search_path = account, pg_temp
as $$
declare
  due uuid;
  deleted integer := 0;
begin
  for due in select c.id from oauth_clients c where c.deleted_at < before order by c.deleted_at loop
    exit when deleted >= most;
    perform from grants g where g.client_id = due limit 1;
    continue when found;
    perform from oauth_clients c where c.id = due for update skip locked;
    continue when not found;
    perform from grants g where g.client_id = due limit 1; -- a new statement: it sees what was committed before the lock
    continue when found;
    delete from client_secrets s where s.client_id = due;
    delete from connection_stops s where s.client_id = due;
    delete from oauth_clients c where c.id = due;
    deleted := deleted + 1;
  end loop;
  return deleted;
end
$$;

-- Old rows are deleted workspace by workspace, as those of grants.
create function account.delete_connection_stops(before timestamptz, most integer) returns integer
language plpgsql volatile
set search_path = account, pg_temp
as $$
declare
  due record;
  part integer;
  deleted integer := 0;
begin
  for due in
    select o.tenant_id, array_agg(o.id) ids
    from (select s.tenant_id, s.id from connection_stops s where s.at < before order by s.at limit most) o
    group by o.tenant_id order by o.tenant_id
  loop
    delete from connection_stops s where s.tenant_id = due.tenant_id and s.id = any (due.ids) and s.at < before;
    get diagnostics part = row_count;
    deleted := deleted + part;
  end loop;
  return deleted;
end
$$;

-- audit_months returns the partitions of the audit log. The first one has no start, and audit_events_default neither
-- start nor end.
create function account.audit_months() returns table (name text, starts timestamptz, ends timestamptz)
language sql stable
set search_path = account, pg_temp
as $$
  select c.relname::text, substring(b.range from 'FROM \(''([^'']*)''\)')::timestamptz,
    substring(b.range from 'TO \(''([^'']*)''\)')::timestamptz
  from pg_inherits i join pg_class c on c.oid = i.inhrelid
  cross join lateral (select pg_get_expr(c.relpartbound, c.oid) as range) b
  where i.inhparent = 'audit_events'::regclass
$$;

-- audit_events_due returns the time before which delete_audit_events(before, ...) deletes: a month goes as a whole.
create function account.audit_events_due(before timestamptz) returns timestamptz
language sql stable security definer
set search_path = account, pg_temp
as $$
  select case when exists (select from audit_months() p where p.starts is null and p.ends > before) then before
    else date_trunc('month', before at time zone 'UTC') at time zone 'UTC' end
$$;

create function account.record_export(event uuid, tenant uuid, by_user uuid, form uuid, detail jsonb, request text) returns void
language sql volatile security definer
set search_path = account, pg_temp
as $$
  insert into audit_events (id, tenant_id, user_id, actor, action, subject, detail, request_id)
  values (event, tenant, by_user, 'user:' || by_user, 'form.exported', 'form:' || form, detail, request)
$$;

-- Each statement on events names the workspace, so that in a distributed database one node runs it. There, every node
-- has a copy of memberships and runs its triggers: only the coordinator writes the event.
create function account.is_coordinator() returns boolean language plpgsql stable set search_path = pg_catalog as $$
declare
  coordinator boolean := true;
begin
  if to_regclass('pg_catalog.pg_dist_local_group') is not null then
    execute 'select groupid = 0 from pg_catalog.pg_dist_local_group' into coordinator;
  end if;
  return coordinator;
end
$$;

-- delete_events deletes old events, which add_event therefore need not do.
create function account.add_event(tenant uuid, kind text, subject uuid, changed text[]) returns void
language plpgsql volatile security definer
set search_path = account, pg_temp
as $$
begin
  insert into events (tenant_id, type, data)
  values (tenant, kind, jsonb_build_object('id', subject) ||
    case when changed is null then '{}' else jsonb_build_object('changed', changed) end);
end
$$;

-- add_webhook adds an endpoint that gets the events from now on. It returns added, full if the workspace has that many,
-- or exists.
create function account.add_webhook(
  webhook uuid, tenant uuid, by_user uuid, address text, kinds text[], sealed bytea, sealed_for bytea, most integer
) returns text
language plpgsql volatile security definer
set search_path = account, pg_temp
as $$
begin
  -- One at a time for each workspace: the list is in the order of created_at, and the number is bounded. The endpoints are on the
  -- coordinator, and so is this lock.
  perform pg_advisory_xact_lock(hashtextextended('webhooks of ' || tenant, 0));
  if exists (select from webhooks w where w.tenant_id = tenant and w.id = webhook) then
    return 'exists';
  end if;
  if (select count(*) from webhooks w where w.tenant_id = tenant) >= most then
    return 'full';
  end if;
  insert into webhooks (id, tenant_id, user_id, url, types, secret, secret_key, position, created_at)
  values (webhook, tenant, by_user, address, kinds, sealed, sealed_for, number_events(tenant), clock_timestamp());
  return 'added';
end
$$;

-- record_webhook records in the audit log what happened to an endpoint. by_user is null if the service disabled it.
create function account.record_webhook(
  event uuid, tenant uuid, by_user uuid, happened text, webhook uuid, detail jsonb, request text
) returns void
language plpgsql volatile security definer
set search_path = account, pg_temp
as $$
begin
  if happened not in ('webhook.added', 'webhook.changed', 'webhook.deleted', 'webhook.enabled', 'webhook.disabled',
      'webhook.secret_replaced') then
    raise exception 'nothing that happens to a webhook endpoint';
  end if;
  insert into audit_events (id, tenant_id, user_id, actor, action, subject, detail, request_id)
  values (event, tenant, by_user, coalesce('user:' || by_user, 'system'), happened, 'webhook:' || webhook, detail, request);
end
$$;

-- webhook_member returns a member of the workspace, or no row.
create function account.webhook_member(tenant uuid, member uuid) returns table (name text, email text)
language sql stable security definer
set search_path = account, pg_temp
as $$
  select u.name, u.email from memberships m join users u on u.id = m.user_id
  where m.tenant_id = tenant and m.user_id = member
$$;

-- drop_audit_month drops the oldest month that ended before a time, and returns the number of its events. It returns
-- null if there is no such month, or if the audit log is in use: a later call drops it. It counts the events before it
-- takes the lock on the audit log, for which it waits only a moment, so that requests that record an event hardly wait.
create function account.drop_audit_month(before timestamptz) returns integer
language plpgsql volatile security definer
set search_path = account, pg_temp
set lock_timeout = '100ms'
as $$
declare
  month text;
  number integer;
begin
  if before is null or before > now() - interval '90 days' then
    raise exception 'audit events are kept for at least 90 days';
  end if;
  select p.name into month from audit_months() p where p.ends <= before order by p.ends limit 1;
  if month is null then
    return null;
  end if;
  begin
    execute format('select count(*) from (select from %I limit 1000000) counted', month) into number;
    execute format('drop table %I', month);
  exception when lock_not_available or undefined_table then -- another process has dropped it
    return null;
  end;
  return number;
end
$$;

-- delete_audit_events deletes at most a number of the events in audit_events_earlier and audit_events_default.
create function account.delete_audit_events(before timestamptz, most integer) returns integer
language plpgsql volatile security definer
set search_path = account, pg_temp
set lock_timeout = '1s'
as $$
declare
  part record;
  number integer;
  deleted integer := 0;
begin
  if before is null or before > now() - interval '90 days' then
    raise exception 'audit events are kept for at least 90 days';
  end if;
  for part in select p.name from audit_months() p where p.starts is null and (p.ends is null or p.ends > before) loop
    execute format('delete from %1$I where (tenant_id, at, id) in (
      select tenant_id, at, id from %1$I where at < $1 order by at limit $2 for update skip locked)', part.name)
      using before, most;
    get diagnostics number = row_count;
    deleted := deleted + number;
  end loop;
  return deleted;
end
$$;

-- resourceapi apply checks that the workspaces of its file exist.
create function account.workspace_exists(tenant uuid) returns boolean
language sql stable security definer
set search_path = account, pg_temp
as $$
  select exists (select from tenants t where t.id = tenant)
$$;

-- make_audit_months adds the partitions of this month and of the three after it, unless they exist.
create function account.make_audit_months() returns void
language plpgsql volatile security definer
set search_path = account, pg_temp
set lock_timeout = '1s'
as $$
declare
  begins timestamptz;
  over timestamptz;
  name text;
begin
  perform pg_advisory_xact_lock(hashtextextended('account.audit_months', 0));
  for begins, over in
    select (m.month at time zone 'UTC'), (m.month + interval '1 month') at time zone 'UTC'
    from generate_series(0, 3) n
    cross join lateral (select date_trunc('month', now() at time zone 'UTC') + make_interval(months => n) as month) m
  loop
    continue when exists (select from audit_months() p where p.ends > begins and coalesce(p.starts, '-infinity') <= begins);
    name := 'audit_events_' || to_char(begins at time zone 'UTC', 'YYYY_MM');
    execute format('create table %I (like audit_events including defaults including indexes)', name);
    execute format('alter table %I set (autovacuum_vacuum_scale_factor = 0.05)', name);
    -- A refusal is recorded once for each grant, reason and hour (RecordRefusal). An hour belongs to one month.
    execute format($sql$create unique index %I on %I
      (subject, (detail->>'reason'), date_trunc('hour', at at time zone 'UTC')) where action = 'grant.refused'$sql$,
      name || '_refusals', name);
    -- The default partition has rows of the month if no process has made months for three months. Without the index of refusals it may
    -- have the same refusal more than once.
    if exists (select from audit_events_default where at >= begins and at < over) then
      lock table audit_events_default in access exclusive mode;
      execute format('with moved as (delete from audit_events_default where at >= $1 and at < $2 returning *)
        insert into %I select * from moved on conflict do nothing', name) using begins, over;
    end if;
    execute format('alter table audit_events attach partition %I for values from (%L) to (%L)', name, begins, over);
  end loop;
end
$$;

create function account.note_use(pats uuid[], pat_tenants uuid[], grant_ids uuid[], grant_tenants uuid[])
returns void -- pats and pat_tenants have one length, and so have grant_ids and grant_tenants
language plpgsql volatile security definer
set search_path = account, pg_temp
as $$
declare
  at timestamptz := now();
  long_ago timestamptz := now() - interval '1 hour';
  asked uuid;
  owner uuid;
begin
  for i in 1 .. coalesce(cardinality(pats), 0) loop -- in the order of the caller, who sorts them
    asked := pats[i];
    owner := pat_tenants[i];
    insert into token_uses as u (tenant_id, token_id, used_at) values (owner, asked, at)
      on conflict (tenant_id, token_id) do update set used_at = excluded.used_at where u.used_at < long_ago;
  end loop;
  for i in 1 .. coalesce(cardinality(grant_ids), 0) loop
    asked := grant_ids[i];
    owner := grant_tenants[i];
    update grants set first_used_at = coalesce(first_used_at, at),
        last_used_at = case when last_used_at >= long_ago then last_used_at else at end
      where tenant_id = owner and id = asked
        and (first_used_at is null or last_used_at is null or last_used_at < long_ago);
  end loop;
end
$$;

create function account.note_use(pats uuid[], grant_ids uuid[], grant_tenants uuid[])
returns void
language plpgsql volatile security definer
set search_path = account, pg_temp
as $$
declare
  at timestamptz := now();
  long_ago timestamptz := now() - interval '1 hour';
  used uuid[];
  owners uuid[];
begin
  if cardinality(pats) > 0 then
    update personal_access_tokens set last_used_at = at
      where id = any (pats) and (last_used_at is null or last_used_at < long_ago);
    select array_agg(p.id order by p.id), array_agg(p.tenant_id order by p.id) into used, owners
      from personal_access_tokens p where p.id = any (pats);
  end if;
  perform note_use(used, owners, grant_ids, grant_tenants);
end
$$;

create function account.webhook_standing(tenant uuid, webhook uuid) returns text[]
language sql stable security definer
set search_path = account, pg_temp
as $$
  select m.permissions from webhooks w join memberships m on m.tenant_id = w.tenant_id and m.user_id = w.user_id
  join users u on u.id = m.user_id
  where w.tenant_id = tenant and w.id = webhook and u.disabled_at is null
$$;

-- Functions for tables that are partitioned by month: by created_at, in UTC. The first partition has no start. The last
-- one has no end: it has rows only if no process has made months for three months. There is no default partition, so
-- that Postgres can read the partitions in the order of their times, one after the other.
create function account.months_of(parent text) returns table (name text, starts timestamptz, ends timestamptz)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select format('%I.%I', c.relnamespace::regnamespace::text, c.relname),
    substring(b.range from 'FROM \(''([^'']*)''\)')::timestamptz, substring(b.range from 'TO \(''([^'']*)''\)')::timestamptz
  from pg_inherits i join pg_class c on c.oid = i.inhrelid
  cross join lateral (select pg_get_expr(c.relpartbound, c.oid) as range) b
  where i.inhparent = parent::regclass
$$;

-- make_months adds the partitions up to the third month after this one. It moves their rows from the last partition.
-- Writes wait behind it for at most 0.1 s if the table is in use; a later call tries again.
create function account.make_months(parent text) returns void
language plpgsql volatile
set search_path = account, pg_temp
set lock_timeout = '100ms'
as $$
declare
  until timestamptz := (date_trunc('month', now() at time zone 'UTC') + interval '4 months') at time zone 'UTC';
  last text;
  month text;
  begins timestamptz;
  over timestamptz;
  has_rows boolean;
begin
  perform pg_advisory_xact_lock(hashtextextended('months of ' || parent, 0));
  select p.name, p.starts into last, begins from account.months_of(parent) p where p.ends is null;
  if last is null or begins >= until then
    return;
  end if;
  execute format('alter table %s detach partition %s', parent, last);
  while begins < until loop
    over := (begins at time zone 'UTC' + interval '1 month') at time zone 'UTC';
    month := parent || to_char(begins at time zone 'UTC', '_YYYY_MM');
    execute format('create table %s (like %s including defaults including constraints including indexes)', month, last);
    execute format('alter table %s set (autovacuum_vacuum_scale_factor = 0.05)', month);
    execute format('select exists (select 1 from %s where created_at < $1)', last) into has_rows using over;
    if has_rows then
      execute format('insert into %s select * from %s where created_at < $1', month, last) using over;
      execute format('delete from %s where created_at < $1', last) using over;
    end if;
    execute format('alter table %s attach partition %s for values from (%L) to (%L)', parent, month, begins, over);
    begins := over;
  end loop;
  execute format('alter table %s attach partition %s for values from (%L) to (maxvalue)', parent, last, begins);
end
$$;

-- Events are numbered and read for 30 days. The bounds of created_at let Postgres read only the partitions of that
-- time. They are not variables, because Postgres would then expect few rows and not read events in the order of their
-- sequences.
create function account.number_events(tenant uuid) returns bigint
language plpgsql volatile security definer
set search_path = account, pg_temp
as $$
declare
  former bigint;
  numbered bigint;
begin
  if exists (select from events e
    where e.tenant_id = tenant and e.sequence is null
      and e.created_at > now() - interval '30 days' and e.created_at < now() + interval '1 day') then
    insert into event_sequences (tenant_id, last) values (tenant, 0) on conflict do nothing;
    select s.last into former from event_sequences s where s.tenant_id = tenant for update;
    -- A new statement: it sees what the transaction that held the lock has numbered.
    update events e set sequence = former + n.number
    from (select u.id, u.created_at, row_number() over (order by u.id) as number from events u
      where u.tenant_id = tenant and u.sequence is null
        and u.created_at > now() - interval '30 days' and u.created_at < now() + interval '1 day') n
    where e.tenant_id = tenant and e.id = n.id and e.created_at = n.created_at;
    get diagnostics numbered = row_count;
    update event_sequences s set last = former + numbered where s.tenant_id = tenant;
  end if;
  return coalesce((select s.last from event_sequences s where s.tenant_id = tenant), 0);
end
$$;

-- read_events returns events of a workspace after a sequence, oldest first, of the subjects in kinds (programme, form,
-- ...).
create function account.read_events(tenant uuid, after bigint, kinds text[], most integer)
returns table (sequence bigint, type text, data jsonb, created_at timestamptz)
language plpgsql volatile security definer
set search_path = account, pg_temp
as $$
begin
  perform number_events(tenant);
  return query select e.sequence, e.type, e.data, e.created_at from events e
    where e.tenant_id = tenant and e.sequence > after
      and e.created_at > now() - interval '30 days' and e.created_at < now() + interval '1 day'
      and split_part(e.type, '.', 1) = any (kinds)
    order by e.sequence limit most;
end
$$;

-- next_webhook_event returns the first event of the types after a sequence, and the last sequence of the workspace. The
-- first columns are null if there is none.
create function account.next_webhook_event(tenant uuid, after bigint, kinds text[])
returns table (sequence bigint, type text, data jsonb, created_at timestamptz, last bigint)
language plpgsql volatile security definer
set search_path = account, pg_temp
as $$
declare
  final bigint := number_events(tenant);
begin
  return query select e.sequence, e.type, e.data, e.created_at, final
    from (select) one left join lateral (
      select * from events v
      where v.tenant_id = tenant and v.sequence > after and v.sequence <= final and v.type = any (kinds)
        and v.created_at > now() - interval '30 days' and v.created_at < now() + interval '1 day'
      order by v.sequence limit 1
    ) e on true;
end
$$;

-- webhooks_due returns endpoints with something to send, those first that were tried longest ago.
create function account.webhooks_due(most integer) returns table (webhook uuid, tenant uuid)
language plpgsql stable security definer
set search_path = account, pg_temp
as $$
declare
  workspaces uuid[];
  waiting uuid[]; -- those with events that have no sequence yet
begin
  workspaces := array(select distinct w.tenant_id from webhooks w where w.enabled and w.next_try_at <= now());
  waiting := array(select distinct e.tenant_id from events e
    where e.sequence is null and e.tenant_id = any (workspaces)
      and e.created_at > now() - interval '30 days' and e.created_at < now() + interval '1 day');
  return query
    with last as materialized (select s.tenant_id, s.last from event_sequences s where s.tenant_id = any (workspaces))
    select w.id, w.tenant_id from webhooks w left join last l on l.tenant_id = w.tenant_id
    where (w.enabled and w.next_try_at <= now() and (l.last > w.position or w.tenant_id = any (waiting)))
      or w.id in (select d.webhook_id from webhook_deliveries d where d.tried_at is null)
    order by w.tried_at nulls first limit most;
end
$$;

create function account.make_event_months() returns void
language sql volatile security definer
set search_path = account, pg_temp
as $$
  select make_months('account.events')
$$;

-- events_due returns the time before which events are deleted now: a month is dropped as a whole.
create function account.events_due(before timestamptz) returns timestamptz
language sql stable security definer
set search_path = account, pg_temp
as $$
  select case when (select bool_or(p.starts is null and p.ends > before) from months_of('account.events') p) is false
    then date_trunc('month', before at time zone 'UTC') at time zone 'UTC' else before end
$$;

-- drop_event_month drops the oldest month that ended before a time, and returns the number of its events. It returns
-- null if there is no such month, or if events are in use: a later call drops it.
create function account.drop_event_month(before timestamptz) returns integer
language plpgsql volatile security definer
set search_path = account, pg_temp
set lock_timeout = '100ms'
as $$
declare
  newest timestamptz := now() - interval '30 days';
  month text;
  number integer;
begin
  select p.name into month from months_of('account.events') p where p.ends <= least(before, newest)
    order by p.ends limit 1;
  if month is null then
    return null;
  end if;
  begin
    execute format('select count(*) from (select 1 from %s limit 1000000) counted', month) into number;
    execute format('drop table %s', month);
  exception when lock_not_available or undefined_table then -- another process has dropped it
    return null;
  end;
  return number;
end
$$;

-- delete_events deletes old events that are in no month: those of events_earlier, or of events if it is one table.
create function account.delete_events(before timestamptz, most integer) returns integer
language plpgsql volatile security definer
set search_path = account, pg_temp
as $$
declare
  newest timestamptz := now() - interval '30 days';
  bound timestamptz := least(before, newest);
  part text;
  workspace uuid;
  number integer;
  deleted integer := 0;
begin
  for part in select p.name from months_of('account.events') p where p.starts is null
    union all select 'account.events' where not exists (select from months_of('account.events'))
  loop
    for workspace in execute format('select distinct e.tenant_id from %s e where e.created_at < $1', part) using bound loop
      execute format('delete from %1$s e where e.tenant_id = $1 and e.id = any (array(
        select o.id from %1$s o where o.tenant_id = $1 and o.created_at < $2
        order by o.created_at limit $3 for update skip locked))', part) using workspace, bound, most - deleted;
      get diagnostics number = row_count;
      deleted := deleted + number;
      if deleted >= most then
        return deleted;
      end if;
    end loop;
  end loop;
  return deleted;
end
$$;
-- +goose StatementEnd

revoke all on all functions in schema account from public;
grant execute on function account.end_replaced, account.standing,
  account.add_event, account.add_webhook,
  account.note_use(uuid[], uuid[]), account.note_use(uuid[], uuid[], uuid[]), account.note_use(uuid[], uuid[], uuid[], uuid[]),
  account.standings(bytea[], uuid[], uuid[], text[]), account.standings(bytea[], uuid[], uuid[], text[], text[]),
  account.standings(bytea[], uuid[], uuid[], uuid[], text[], text[])
  to almoner_authserver, almoner_resourceapi;
grant execute on function account.audit_events_due, account.delete_audit_events, account.delete_clients, account.delete_connection_stops,
  account.delete_events, account.delete_grants, account.drop_audit_month, account.drop_event_month, account.events_due,
  account.is_coordinator, account.make_audit_months, account.make_event_months
  to almoner_authserver;
grant execute on function account.module_state, account.next_webhook_event, account.read_events, account.record_erasure,
  account.record_export, account.record_webhook, account.webhook_event, account.webhook_member, account.webhooks_due,
  account.workspace_exists, account.webhook_standing(uuid), account.webhook_standing(uuid, uuid),
  account.askable(uuid), account.askable(uuid, uuid), account.names(bytea, uuid), account.names(bytea, uuid, uuid),
  account.profile(bytea, uuid), account.profile(bytea, uuid, uuid)
  to almoner_resourceapi;

-- +goose StatementBegin
-- Trigger functions.
create function account.note_connection() returns trigger language plpgsql security definer set search_path = account, pg_temp as $$
begin
  perform add_event(new.tenant_id, case new.state when 'active' then 'connection.approved' else 'connection.ended' end, new.id, null);
  return null;
end
$$;

create function account.note_removed_key() returns trigger language plpgsql as $$
begin
  new.removed_at := now();
  return new;
end
$$;

create function account.set_audit_workspace() returns trigger language plpgsql as $$
begin
  new.tenant_id := '00000000-0000-0000-0000-000000000000';
  return new;
end
$$;

-- The functions that add events run as the service that changes the record: a distributed transaction writes the rows
-- of a workspace as one role.
create function account.note_membership() returns trigger
language plpgsql security definer set search_path = account, pg_temp as $$
begin
  if not is_coordinator() then
    return null;
  end if;
  if tg_op = 'INSERT' then
    perform add_event(new.tenant_id, 'member.added', new.user_id, null);
  elsif tg_op = 'DELETE' then
    perform add_event(old.tenant_id, 'member.removed', old.user_id, null);
  else
    perform add_event(new.tenant_id, 'member.updated', new.user_id, array['permissions']);
  end if;
  return null;
end
$$;

create function account.add_workspace_of_delivery() returns trigger
language plpgsql set search_path = account, pg_temp as $$
begin
  select w.tenant_id into new.tenant_id from webhooks w where w.id = new.webhook_id;
  return new;
end
$$;
-- +goose StatementEnd

create trigger add_workspace before insert on account.webhook_deliveries
  for each row when (new.tenant_id is null) execute function account.add_workspace_of_delivery();
-- A connection is approved when its code is redeemed: an approval whose code is never used connects nothing.
create trigger note_connection after update on account.grants
  for each row when (old.state is distinct from new.state and (new.state = 'active' or old.state = 'active'))
  execute function account.note_connection();
create trigger note_new_connection after insert on account.grants
  for each row when (new.state = 'active') execute function account.note_connection();
create trigger note_membership after insert or delete on account.memberships
  for each row execute function account.note_membership();
create trigger note_permissions after update on account.memberships
  for each row when (old.permissions is distinct from new.permissions) execute function account.note_membership();
create trigger note_removed_key before update on account.signing_keys
  for each row when (new.state = 'removed' and old.state <> 'removed') execute function account.note_removed_key();
create trigger set_audit_workspace before insert on account.audit_events
  for each row when (new.tenant_id is null) execute function account.set_audit_workspace();

-- The first partitions of the audit log and of the events end with the current month or the next one.
-- +goose StatementBegin
do $$
declare
  ends timestamptz := (date_trunc('month', now() at time zone 'UTC' + interval '20 days') + interval '1 month') at time zone 'UTC';
begin
  create table account.audit_events_earlier (like account.audit_events including defaults, primary key (tenant_id, at, id))
    with (autovacuum_vacuum_scale_factor = 0.05);
  create index audit_events_earlier_by_time on account.audit_events_earlier (at);
  create index audit_events_earlier_by_subject on account.audit_events_earlier (subject, at desc);
  create index audit_events_earlier_by_request on account.audit_events_earlier (tenant_id, request_id, at desc, id desc)
    where request_id <> '';
  create index audit_events_earlier_by_user on account.audit_events_earlier (user_id, at desc, id desc);
  -- A refusal is recorded once for each grant, reason and hour, so that a client that asks again and again cannot fill the table.
  create unique index audit_events_earlier_refusals on account.audit_events_earlier
    (subject, (detail->>'reason'), date_trunc('hour', at at time zone 'UTC')) where action = 'grant.refused';
  execute format('alter table account.audit_events attach partition account.audit_events_earlier for values from (minvalue) to (%L)', ends);
  create table account.audit_events_default partition of account.audit_events default;
  create unique index audit_events_default_refusals on account.audit_events_default
    (subject, (detail->>'reason'), date_trunc('hour', at at time zone 'UTC')) where action = 'grant.refused';
  perform account.make_audit_months();

  -- An index makes sequences unique within a month. Sequences of two months differ, because number_events assigns them under the lock
  -- of the workspace's counter.
  create table account.events_earlier (like account.events including defaults, primary key (tenant_id, id, created_at))
    with (autovacuum_vacuum_scale_factor = 0.05);
  create unique index events_earlier_by_sequence on account.events_earlier (tenant_id, sequence) where sequence is not null;
  create index events_earlier_without_sequence on account.events_earlier (tenant_id, id) where sequence is null;
  create index events_earlier_by_age on account.events_earlier (created_at);
  execute format('alter table account.events attach partition account.events_earlier for values from (minvalue) to (%L)', ends);
  create table account.events_later (like account.events including defaults including indexes);
  create unique index events_later_by_sequence on account.events_later (tenant_id, sequence) where sequence is not null;
  create index events_later_without_sequence on account.events_later (tenant_id, id) where sequence is null;
  create index events_later_by_age on account.events_later (created_at);
  execute format('alter table account.events attach partition account.events_later for values from (%L) to (maxvalue)', ends);
  perform account.make_months('account.events');
end
$$;
-- +goose StatementEnd

-- The tables of the mail queue (River), in a schema of their own: resourceapi's queue has another schema and another
-- release cycle. This is what River's migrations 1 to 8 make (rivermigrate, line main); TestMailJobs_SchemaIsRivers
-- compares it with the library's.
create schema account_jobs;

create type account_jobs.river_job_state as enum (
  'available', 'cancelled', 'completed', 'discarded', 'pending', 'retryable', 'running', 'scheduled'
);

create table account_jobs.river_migration (
  line text not null,
  version bigint not null,
  created_at timestamptz not null default now(),
  constraint line_length check (char_length(line) > 0 and char_length(line) < 128),
  constraint version_gte_1 check (version >= 1),
  primary key (line, version)
);
insert into account_jobs.river_migration (line, version) select 'main', generate_series(1, 8);

create table account_jobs.river_job (
  id bigserial primary key,
  state account_jobs.river_job_state not null default 'available',
  attempt smallint not null default 0,
  max_attempts smallint not null default 25,
  attempted_at timestamptz,
  created_at timestamptz not null default now(),
  finalized_at timestamptz,
  scheduled_at timestamptz not null default now(),
  priority smallint not null default 1,
  args jsonb not null,
  attempted_by text[],
  errors jsonb[],
  kind text not null,
  metadata jsonb not null default '{}',
  queue text not null default 'default',
  tags varchar(255)[] not null default '{}',
  unique_key bytea,
  unique_states bit(8),
  constraint finalized_or_finalized_at_null check (
    (finalized_at is null and state not in ('cancelled', 'completed', 'discarded'))
    or (finalized_at is not null and state in ('cancelled', 'completed', 'discarded'))
  ),
  constraint max_attempts_is_positive check (max_attempts > 0),
  constraint priority_in_range check (priority >= 1 and priority <= 4),
  constraint queue_length check (char_length(queue) > 0 and char_length(queue) < 128),
  constraint kind_length check (char_length(kind) > 0 and char_length(kind) < 128)
);
create index river_job_kind on account_jobs.river_job (kind);
create index river_job_state_and_finalized_at_index on account_jobs.river_job (state, finalized_at)
  where finalized_at is not null;
create index river_job_prioritized_fetching_index on account_jobs.river_job (state, queue, priority, scheduled_at, id);
create index river_job_args_index on account_jobs.river_job using gin (args);
create index river_job_metadata_index on account_jobs.river_job using gin (metadata);

-- +goose StatementBegin
create function account_jobs.river_job_state_in_bitmask(bitmask bit(8), state account_jobs.river_job_state)
returns boolean language sql immutable as $$
  select case state
    when 'available' then get_bit(bitmask, 7)
    when 'cancelled' then get_bit(bitmask, 6)
    when 'completed' then get_bit(bitmask, 5)
    when 'discarded' then get_bit(bitmask, 4)
    when 'pending' then get_bit(bitmask, 3)
    when 'retryable' then get_bit(bitmask, 2)
    when 'running' then get_bit(bitmask, 1)
    when 'scheduled' then get_bit(bitmask, 0)
    else 0
  end = 1;
$$;
-- +goose StatementEnd
create unique index river_job_unique_idx on account_jobs.river_job (unique_key)
  where unique_key is not null and unique_states is not null
    and account_jobs.river_job_state_in_bitmask(unique_states, state);

create unlogged table account_jobs.river_leader (
  elected_at timestamptz not null,
  expires_at timestamptz not null,
  leader_id text not null,
  name text primary key default 'default',
  constraint name_length check (name = 'default'),
  constraint leader_id_length check (char_length(leader_id) > 0 and char_length(leader_id) < 128)
);

create table account_jobs.river_queue (
  name text primary key,
  created_at timestamptz not null default now(),
  metadata jsonb not null default '{}',
  paused_at timestamptz,
  updated_at timestamptz not null default current_timestamp
);

create table account_jobs.river_notification (
  id bigserial primary key,
  created_at timestamptz not null default now(),
  payload text not null,
  topic text not null,
  constraint topic_length check (length(topic) > 0 and length(topic) < 128)
);
create index river_notification_created_at_idx on account_jobs.river_notification (created_at);
create index river_notification_topic_id_idx on account_jobs.river_notification (topic, id);

grant usage on schema account_jobs to almoner_authserver;
grant select, insert, update, delete on all tables in schema account_jobs to almoner_authserver;
grant usage, select on all sequences in schema account_jobs to almoner_authserver;

-- The numbers of the migrations that made this schema before, for the programs of commit 0cfcdfce.
insert into goose_authserver (version_id, is_applied) select number, true from unnest(array[
  1, 10, 30, 40, 50, 70, 80, 90, 95, 96, 97, 98, 100, 110, 111, 120, 130, 131, 132, 133, 134, 140, 141, 150, 175, 176, 180, 181,
  190, 191, 192, 200, 201, 202, 210, 220, 221, 222, 223, 224, 225, 226, 230, 231, 232, 233, 234, 235, 236, 237, 249, 250, 251,
  252, 253, 254, 255, 260, 262, 263, 270, 280, 281, 282, 283, 284, 285, 290, 291, 292, 293, 294, 295, 300, 301, 302, 303, 304,
  305, 310, 311
]) with ordinality v (number, place) order by place;

-- +goose Down
select 1 / 0; -- forward only
