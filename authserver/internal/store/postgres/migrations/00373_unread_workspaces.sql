-- unread_workspaces looks for one event in each workspace, in the order of an index. As one statement for all of them, it read the whole
-- backlog of another workspace if the statistics were older than that backlog.

-- +goose Up
-- +goose StatementBegin
create or replace function account.unread_workspaces(asked uuid[]) returns uuid[]
language plpgsql stable security definer
set search_path = account, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
as $$
declare
  workspace uuid;
  unread uuid[] := '{}';
begin
  for workspace in select s.tenant_id from event_sequences s where s.tenant_id = any (asked) loop
    perform from events e where e.tenant_id = workspace and e.sequence is null
      and e.created_at >= date_trunc('month', (now() - interval '30 days') at time zone 'UTC') at time zone 'UTC'
      and e.created_at < now() + interval '1 day'
    order by e.id limit 1;
    if found then
      unread := unread || workspace;
    end if;
  end loop;
  return unread;
end
$$;
-- +goose StatementEnd

-- +goose Down
select 1 / 0; -- forward only
