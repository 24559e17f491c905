-- +goose NO TRANSACTION
-- Programmes that were changed, by when: what updatedSince finds besides the new ones.

-- +goose Up
drop index concurrently if exists resource.programmes_changed;
create index concurrently programmes_changed on resource.programmes (tenant_id, updated_at desc, created_at)
  where updated_at > created_at;

-- +goose Down
select 1 / 0; -- forward only
