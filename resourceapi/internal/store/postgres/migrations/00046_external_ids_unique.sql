-- +goose NO TRANSACTION
-- No two programmes of a workspace have the same external id.

-- +goose Up
drop index concurrently if exists resource.programmes_external_id;
create unique index concurrently programmes_external_id on resource.programmes (tenant_id, external_id)
  where external_id is not null;

-- +goose Down
select 1 / 0; -- forward only
