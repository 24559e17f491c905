-- Records become visible in the order of their times. Each list (the programmes and the forms of a workspace, the
-- submissions of a form) has one row that a writer locks, takes the next moment under, and keeps locked until it commits.
-- So a time is later than every time of the list that could be read before. The row itself never changes, so that it
-- does not grow dead versions while a long transaction, such as a backup, is open.

-- +goose Up
create table resource.list_locks (
  tenant_id uuid not null,
  list text not null, -- 'programmes', 'forms', or the id of the form whose submissions are meant
  primary key (tenant_id, list)
);

-- +goose StatementBegin
-- next_moment locks the list and returns a time for the record that is written: later than every time in the list, by at
-- least one microsecond for each of the records. A transaction calls it after everything that may wait for another one.
create function resource.next_moment(workspace uuid, list_name text, records integer default 1) returns timestamptz
  language plpgsql volatile set search_path = pg_catalog as $$
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
      (select s.created_at from resource.submissions s where s.form_id = list_name::uuid order by s.created_at desc limit 1),
      (select s.finished_at from resource.submissions s where s.form_id = list_name::uuid and s.finished_at is not null
        order by s.finished_at desc limit 1));
  end if;
  return greatest(clock_timestamp(), newest + records * interval '1 microsecond');
end
$$;
-- +goose StatementEnd

revoke all on function resource.next_moment(uuid, text, integer) from public;
grant execute on function resource.next_moment(uuid, text, integer) to almoner_resourceapi;
grant select, insert, update, delete on resource.list_locks to almoner_resourceapi;

-- +goose Down
select 1 / 0; -- forward only
