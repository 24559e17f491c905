-- The service sees which migrations were applied: before the last one it knows of, it is not ready.

-- +goose Up
grant select on goose_resourceapi to almoner_resourceapi;

-- +goose Down
select 1 / 0; -- forward only
