-- The id that a programme has in another system, chosen by the workspace's integrations.

-- +goose Up
alter table resource.programmes add column external_id text
  constraint programmes_external_id_length check (char_length(external_id) between 1 and 200);

-- +goose Down
select 1 / 0; -- forward only
