-- +goose NO TRANSACTION
-- Submissions that are of no supporter (yet), which an erasure searches for the e-mail address.

-- +goose Up
drop index concurrently if exists resource.submissions_unlinked;
create index concurrently submissions_unlinked on resource.submissions (tenant_id) where supporter_id is null;

-- +goose Down
select 1 / 0; -- forward only
