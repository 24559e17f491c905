-- +goose NO TRANSACTION
-- The previous release finds imports by the id alone. The next release drops this index.

-- +goose Up
drop index concurrently if exists resource.imports_id;
create index concurrently imports_id on resource.imports (id);

-- +goose Down
select 1 / 0; -- forward only
