-- +goose NO TRANSACTION
-- The members of a workspace, the latest first: a page of them is read however many there are.

-- +goose Up
drop index concurrently if exists account.memberships_by_joining;
create index concurrently memberships_by_joining on account.memberships (tenant_id, created_at desc, user_id desc);

-- +goose Down
select 1 / 0; -- forward only
