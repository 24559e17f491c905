-- Authenticator apps (RFC 6238) and recovery codes.
-- +goose Up

-- A row makes sign-ins and reauthentications with the user's password require a code.
create table account.authenticators (
  user_id uuid primary key references account.users,
  secret bytea not null, -- sealed with ALMONER_KEYS
  last_step bigint not null, -- the time step of the last accepted code: each code is good once
  created_at timestamptz not null default now()
);

-- Unused recovery codes. A used one is deleted.
create table account.recovery_codes (
  user_id uuid not null references account.authenticators on delete cascade,
  code_hash bytea not null check (length(code_hash) = 32),
  primary key (user_id, code_hash)
);

grant select, insert, update, delete on account.authenticators, account.recovery_codes to almoner_authserver;

-- +goose Down
select 1 / 0; -- forward only
