-- +goose NO TRANSACTION
-- Imports that finished long enough ago to be deleted.

-- +goose Up
drop index concurrently if exists resource.imports_by_end;
create index concurrently imports_by_end on resource.imports (finished_at) where finished_at is not null;

-- +goose Down
select 1 / 0; -- forward only
