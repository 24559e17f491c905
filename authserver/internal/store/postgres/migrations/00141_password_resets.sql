-- Links to set a new password, and the mails that a user turned off.
-- +goose Up

-- A link is good once and until its end. It is found by the hash of its token.
create table account.password_resets (
  token_hash bytea primary key check (length(token_hash) = 32),
  user_id uuid not null references account.users,
  created_at timestamptz not null default now(),
  expires_at timestamptz not null,
  used_at timestamptz -- also set when another link of the user was used, or the password was changed
);
create index password_resets_by_user on account.password_resets (user_id, created_at);

-- A row turns the mails of a kind off. Mails about security are sent in any case.
create table account.unwanted_mails (
  user_id uuid not null references account.users,
  kind text not null,
  primary key (user_id, kind)
);

grant select, insert, update, delete on account.password_resets, account.unwanted_mails to almoner_authserver;

-- +goose Down
select 1 / 0; -- forward only
