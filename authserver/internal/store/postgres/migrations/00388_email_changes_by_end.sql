-- +goose NO TRANSACTION
-- Retention finds these records by their time. Without the index, each of its statements, one for 500 records, reads the whole table.

-- +goose Up
drop index concurrently if exists account.email_changes_by_end;
create index concurrently email_changes_by_end on account.email_changes (expires_at);

-- +goose Down
select 1 / 0; -- forward only
