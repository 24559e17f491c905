-- The first answers of the account API's writes, for 24 hours (contract, section 6). The row is made before the effect, in its transaction.
-- The body is sealed (package seal), since it may have a secret.

-- +goose Up
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
grant select, insert, update, delete on account.idempotency_keys to almoner_authserver;

-- +goose Down
select 1 / 0; -- forward only
