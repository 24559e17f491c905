-- +goose NO TRANSACTION
-- Stopped attempts of a client that is deleted.

-- +goose Up
drop index concurrently if exists account.connection_stops_by_client;
create index concurrently connection_stops_by_client on account.connection_stops (client_id);

-- +goose Down
select 1 / 0; -- forward only
