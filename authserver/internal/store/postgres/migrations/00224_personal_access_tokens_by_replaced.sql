-- +goose NO TRANSACTION
-- The successor of a personal access token, which loses its predecessor when that is deleted.

-- +goose Up
drop index concurrently if exists account.personal_access_tokens_by_replaced;
create index concurrently personal_access_tokens_by_replaced on account.personal_access_tokens (replaces_id) where replaces_id is not null;

-- +goose Down
select 1 / 0; -- forward only
