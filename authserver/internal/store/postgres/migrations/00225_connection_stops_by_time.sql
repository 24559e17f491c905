-- +goose NO TRANSACTION
-- Stopped attempts that are old enough to be deleted.

-- +goose Up
drop index concurrently if exists account.connection_stops_by_time;
create index concurrently connection_stops_by_time on account.connection_stops (at);

-- +goose Down
select 1 / 0; -- forward only
