-- Links to set a password that an operator made. They may remove passkeys that a workspace requires.
-- The previous release inserts links without the column.
-- +goose Up
alter table account.password_resets add column by_operator boolean not null default false;

-- +goose Down
select 1 / 0; -- forward only
