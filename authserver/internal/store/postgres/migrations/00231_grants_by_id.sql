-- +goose NO TRANSACTION
-- Finds a grant by its id alone: for operators, and for tokens that do not contain their workspace. It is unique only for
-- the previous release, whose inserts name it as the target of their conflicts. `authserver migrate --finish` replaces
-- it with grants_located, which is not unique.

-- +goose Up
drop index concurrently if exists account.grants_by_id;
create unique index concurrently grants_by_id on account.grants (id);

-- +goose Down
select 1 / 0; -- forward only
