-- +goose NO TRANSACTION
-- Submissions that wait, by workspace: one with many is worked on after one with few.

-- +goose Up
drop index concurrently if exists resource.submissions_waiting;
create index concurrently submissions_waiting on resource.submissions (tenant_id) where status = 'accepted';

-- +goose Down
select 1 / 0; -- forward only
