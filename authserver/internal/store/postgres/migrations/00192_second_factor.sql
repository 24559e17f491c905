-- A workspace can require a second factor of its members. second_factor_at is when a sign-in with a password was completed
-- with a second factor: a code of an authenticator app, a passkey, or the first one that the user set up. A previous
-- release writes neither column; its sign-ins count as made with the password alone.

-- +goose Up
alter table account.tenants add column second_factor_required boolean not null default false;
alter table account.sign_ins add column second_factor_at timestamptz;
grant update (second_factor_required) on account.tenants to almoner_authserver;

-- +goose Down
select 1 / 0; -- forward only
