-- +goose NO TRANSACTION
-- The key of a submission contains its time, as the key of a table that is partitioned by month must (migration 151).

-- +goose Up
drop index concurrently if exists resource.submissions_key;
create unique index concurrently submissions_key on resource.submissions (tenant_id, id, created_at);

-- +goose Down
select 1 / 0; -- forward only
