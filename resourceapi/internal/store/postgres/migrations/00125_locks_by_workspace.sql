-- Locks of a workspace are rows, which every node of a distributed database sees, and their statements name the workspace.

-- +goose Up
-- +goose StatementBegin
create or replace function resource.next_moment(workspace uuid, list_name text, records integer default 1)
  returns timestamptz language plpgsql volatile set search_path = pg_catalog as $$
declare
  newest timestamptz;
begin
  perform 1 from resource.list_locks l where l.tenant_id = workspace and l.list = list_name for update;
  if not found then
    insert into resource.list_locks (tenant_id, list) values (workspace, list_name) on conflict do nothing;
    perform 1 from resource.list_locks l where l.tenant_id = workspace and l.list = list_name for update;
  end if;
  -- Each statement of this function sees what was committed before it, and so what the lock was waited for.
  if list_name = 'programmes' then
    newest := greatest(
      (select p.created_at from resource.programmes p where p.tenant_id = workspace order by p.created_at desc limit 1),
      (select p.updated_at from resource.programmes p where p.tenant_id = workspace and p.updated_at > p.created_at
        order by p.updated_at desc limit 1));
  elsif list_name = 'forms' then
    newest := (select f.created_at from resource.forms f where f.tenant_id = workspace order by f.created_at desc limit 1);
  else
    newest := greatest(
      (select s.created_at from resource.submissions s where s.tenant_id = workspace and s.form_id = list_name::uuid
        order by s.created_at desc limit 1),
      (select s.finished_at from resource.submissions s where s.tenant_id = workspace and s.form_id = list_name::uuid
        and s.finished_at is not null order by s.finished_at desc limit 1));
  end if;
  return greatest(clock_timestamp(), newest + records * interval '1 microsecond');
end
$$;

-- lock_external_ids makes the transaction the only one that gives external ids in the workspace. The advisory lock is that of
-- the previous release, which does not lock the row.
create function resource.lock_external_ids(workspace uuid) returns void
  language plpgsql volatile set search_path = pg_catalog as $$
begin
  perform pg_advisory_xact_lock(hashtextextended('external ids of ' || workspace, 0));
  perform 1 from resource.list_locks l where l.tenant_id = workspace and l.list = 'external ids' for update;
  if not found then
    insert into resource.list_locks (tenant_id, list) values (workspace, 'external ids') on conflict do nothing;
    perform 1 from resource.list_locks l where l.tenant_id = workspace and l.list = 'external ids' for update;
  end if;
end
$$;
-- +goose StatementEnd

revoke all on function resource.lock_external_ids(uuid) from public;
grant execute on function resource.lock_external_ids(uuid) to almoner_resourceapi;

-- +goose Down
select 1 / 0; -- forward only
