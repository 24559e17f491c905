-- +goose NO TRANSACTION
-- The previous release finds supporters by the id alone. The next release drops this index.

-- +goose Up
drop index concurrently if exists resource.supporters_id;
create index concurrently supporters_id on resource.supporters (id);

-- +goose Down
select 1 / 0; -- forward only
