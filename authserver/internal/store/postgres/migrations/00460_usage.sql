-- What each credential did, and from where (contract, section 5b). Both services count in the process and add to these rows in batches.

-- +goose Up
create table account.usage (
  tenant_id uuid not null,
  credential_id uuid not null, -- a grant or a personal access token, which may have been deleted since
  day date not null, -- in UTC
  operation text not null, -- an operationId of the API description or the name of a tool
  service_id uuid not null default '00000000-0000-0000-0000-000000000000', -- the client that introspected, for introspections
  kind text not null check (kind in ('personal_access_token', 'connection')),
  user_id uuid not null,
  requests bigint not null,
  refused bigint not null default 0, -- those answered 401, 403 or 429
  records bigint not null default 0, -- given or changed
  primary key (tenant_id, day, credential_id, operation, service_id) -- the order of the list
) with (fillfactor = 80); -- the counts change often, and no index has them
create index usage_by_credential on account.usage (tenant_id, credential_id, day);
create index usage_to_delete on account.usage (day);
create index usage_by_user on account.usage (user_id, tenant_id, day);

-- The last batch that a process has added, so that a batch whose outcome it did not learn is not added twice.
create table account.usage_writers (
  id uuid primary key, -- of the process
  batch bigint not null,
  written_at timestamptz not null default now()
);
create index usage_writers_by_time on account.usage_writers (written_at);

-- The networks from which a credential was used: IPv4 /24, IPv6 /48.
create table account.credential_networks (
  tenant_id uuid not null,
  credential_id uuid not null,
  network cidr not null,
  kind text not null check (kind in ('personal_access_token', 'connection')),
  user_id uuid not null,
  first_used_at timestamptz not null,
  last_used_at timestamptz not null, -- exact to the day
  mail_due boolean not null default false, -- a mail about it is due
  primary key (tenant_id, credential_id, network)
);
create index credential_networks_by_user on account.credential_networks (user_id);
create index credential_networks_by_use on account.credential_networks (last_used_at);
create index credential_networks_to_mail on account.credential_networks (tenant_id, credential_id) where mail_due;

grant select, insert, update, delete on account.usage, account.usage_writers, account.credential_networks to almoner_authserver;
grant select, insert, update on account.usage, account.usage_writers, account.credential_networks to almoner_resourceapi;

-- +goose Down
select 1 / 0; -- forward only
