-- The primary keys of programmes and imports have the workspace. No other table refers to them.

-- +goose Up
alter table resource.programmes
  drop constraint programmes_pkey,
  add constraint programmes_pkey primary key using index programmes_workspace_id;
alter table resource.imports
  drop constraint imports_pkey,
  add constraint imports_pkey primary key using index imports_workspace_id;

-- +goose Down
select 1 / 0; -- forward only
