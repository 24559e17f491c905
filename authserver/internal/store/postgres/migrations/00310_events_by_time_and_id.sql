-- +goose NO TRANSACTION
-- The key of an event contains its time, as the key of a table that is partitioned by month must (migration 311).

-- +goose Up
drop index concurrently if exists account.events_key;
create unique index concurrently events_key on account.events (tenant_id, id, created_at);

-- +goose Down
select 1 / 0; -- forward only
