-- Requests of users to change their e-mail address. The address changes when both links were confirmed: the one to the old address and the
-- one to the new. A user has at most one open request. The links are found by the hashes of their tokens.

-- +goose Up
create table account.email_changes (
  id uuid primary key,
  user_id uuid not null references account.users,
  old_email text not null,
  new_email text not null check (new_email = lower(new_email) and new_email like '%_@_%'),
  old_token_hash bytea not null unique check (length(old_token_hash) = 32),
  new_token_hash bytea not null unique check (length(new_token_hash) = 32),
  created_at timestamptz not null default now(),
  expires_at timestamptz not null,
  old_confirmed_at timestamptz,
  new_confirmed_at timestamptz,
  ended_at timestamptz,
  outcome text check (outcome in ('changed', 'stopped', 'replaced', 'taken')),
  check ((ended_at is null) = (outcome is null))
);
create unique index email_changes_open on account.email_changes (user_id) where ended_at is null;
create index email_changes_by_user on account.email_changes (user_id, created_at);
create index email_changes_by_address on account.email_changes (new_email, created_at);

grant select, insert, update, delete on account.email_changes to almoner_authserver;

-- +goose Down
select 1 / 0; -- forward only
