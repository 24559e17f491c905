-- An answer is repeated only to a caller who has the permissions that its write needed, and one with a secret only to the credential
-- that got it first. The previous release writes neither column.

-- +goose Up
alter table resource.idempotency_keys add column needs text[], add column credential_id uuid;

-- +goose Down
select 1 / 0; -- forward only
