-- The primary key of an invitation is its workspace and its id. Nothing refers to the former key, and no insert names it. A link is
-- found by the hash of its token, which is unique in all workspaces.

-- +goose Up
-- +goose StatementBegin
do $$
begin
  if to_regclass('pg_catalog.pg_dist_partition') is null then
    alter table account.invitations drop constraint invitations_pkey,
      add constraint invitations_pkey primary key using index invitations_by_workspace;
  else -- Citus has no "using index" for its tables; this one is small
    alter table account.invitations drop constraint invitations_pkey;
    alter table account.invitations add constraint invitations_pkey primary key (tenant_id, id);
    drop index account.invitations_by_workspace;
  end if;
end
$$;
-- +goose StatementEnd

-- +goose Down
select 1 / 0; -- forward only
