-- +goose NO TRANSACTION
-- The previous release finds forms by the id alone. The next release drops this index.

-- +goose Up
drop index concurrently if exists resource.forms_id;
create index concurrently forms_id on resource.forms (id);

-- +goose Down
select 1 / 0; -- forward only
