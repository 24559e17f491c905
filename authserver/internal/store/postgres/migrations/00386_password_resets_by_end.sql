-- +goose NO TRANSACTION
-- Retention finds these records by their time. Without the index, each of its statements, one for 500 records, reads the whole table.

-- +goose Up
drop index concurrently if exists account.password_resets_by_end;
create index concurrently password_resets_by_end on account.password_resets (expires_at);

-- +goose Down
select 1 / 0; -- forward only
