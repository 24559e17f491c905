-- +goose NO TRANSACTION
-- The order of the list of supporters: newest first, ties by id.

-- +goose Up
drop index concurrently if exists resource.supporters_page;
create index concurrently supporters_page on resource.supporters (tenant_id, created_at desc, id desc);

-- +goose Down
select 1 / 0; -- forward only
