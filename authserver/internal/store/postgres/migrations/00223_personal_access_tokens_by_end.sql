-- +goose NO TRANSACTION
-- Personal access tokens that expired long enough ago to be deleted.

-- +goose Up
drop index concurrently if exists account.personal_access_tokens_by_end;
create index concurrently personal_access_tokens_by_end on account.personal_access_tokens (expires_at);

-- +goose Down
select 1 / 0; -- forward only
