-- When a workspace had its turn last: the worker takes an import of the workspace whose turn is longest ago. It locks the
-- row while the import is processed, so that one workspace has one worker at most.

-- +goose Up
create table resource.import_turns (
  tenant_id uuid primary key,
  last_at timestamptz not null
);
grant select, insert, update, delete on resource.import_turns to almoner_resourceapi;

-- +goose Down
select 1 / 0; -- forward only
