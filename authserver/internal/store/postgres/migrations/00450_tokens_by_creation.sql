-- +goose NO TRANSACTION
-- The active personal access tokens of a workspace, the latest first: a page of them is read however many there are.

-- +goose Up
drop index concurrently if exists account.personal_access_tokens_by_creation;
create index concurrently personal_access_tokens_by_creation
  on account.personal_access_tokens (tenant_id, created_at desc, id desc) where revoked_at is null;

-- +goose Down
select 1 / 0; -- forward only
