-- When the owner of a personal access token was told that it is about to expire. Null: not yet.

-- +goose Up
alter table account.personal_access_tokens add column expiry_mailed_at timestamptz;
create index personal_access_tokens_to_mail on account.personal_access_tokens (expires_at)
  where expiry_mailed_at is null and revoked_at is null;

-- +goose Down
select 1 / 0; -- forward only
