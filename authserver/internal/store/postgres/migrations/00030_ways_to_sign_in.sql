-- Ways to sign in besides the password: passkeys, and an account at an upstream OpenID Connect provider.

-- +goose Up
create table account.passkeys (
  id uuid primary key,
  user_id uuid not null references account.users,
  name text not null check (name <> ''),
  credential_id bytea not null unique check (length(credential_id) between 1 and 1023),
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
  primary key (issuer, subject),
  constraint identities_one_of_each_issuer unique (user_id, issuer)
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

grant select, insert, update, delete on account.passkeys, account.identities, account.ceremonies to almoner_authserver;

-- +goose Down
select 1 / 0; -- forward only
