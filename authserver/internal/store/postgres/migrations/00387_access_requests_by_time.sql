-- +goose NO TRANSACTION
-- Retention finds these records by their time. Without the index, each of its statements, one for 500 records, reads the whole table.

-- +goose Up
drop index concurrently if exists account.access_requests_by_time;
create index concurrently access_requests_by_time on account.access_requests (asked_at);

-- +goose Down
select 1 / 0; -- forward only
