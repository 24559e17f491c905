-- number_events writes a step in one statement: as one statement for each event, it took 380 µs for an event, most of it to open and
-- lock each month again. The update is no join, which statistics from before a backlog could turn around: it reads the range of the ids
-- in the index of events without a sequence. The ids are in order, so the place of an id among them is the number of its event, and an
-- event that was committed meanwhile is found not to be among them. A place whose event retention has deleted meanwhile stays empty.
--
-- Events without a sequence are looked for in all months, of which there are few. The bounds of a time made Postgres prefer the primary key,
-- with all events of the workspace, to the index of those without a sequence, as long as its statistics were from before a backlog was
-- numbered: the 300,000th event of one took 700 µs, and each poll read all events.

-- +goose Up
-- +goose StatementBegin
create or replace function account.number_events(tenant uuid, most integer, out last bigint, out behind boolean)
language plpgsql volatile security definer
set search_path = account, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set enable_sort = off
as $$
declare
  unread boolean;
  ids bigint[];
  earliest timestamptz;
  latest timestamptz;
begin
  select s.behind into behind from event_sequences s where s.tenant_id = tenant;
  if behind is not true then
    perform from events e where e.tenant_id = tenant and e.sequence is null order by e.id limit 1;
    unread := found;
    -- After the events: what was read by then, others have counted.
    select s.last, s.behind into last, behind from event_sequences s where s.tenant_id = tenant;
    if behind is false and not unread then
      return;
    end if;
  end if;
  insert into event_sequences (tenant_id, last) values (tenant, 0) on conflict do nothing;
  select s.last into last from event_sequences s where s.tenant_id = tenant for update;
  -- A new statement: it sees what the transaction that held the lock has numbered.
  select array_agg(u.id), min(u.created_at), max(u.created_at) into ids, earliest, latest from (
    select v.id, v.created_at from events v where v.tenant_id = tenant and v.sequence is null order by v.id limit most
  ) u;
  update events e set sequence = number_events.last + width_bucket(e.id, ids)
  where e.tenant_id = tenant and e.sequence is null and e.id between ids[1] and ids[cardinality(ids)]
    and e.created_at between earliest and latest and ids[width_bucket(e.id, ids)] = e.id;
  last := last + coalesce(cardinality(ids), 0);
  behind := coalesce(cardinality(ids), 0) >= most;
  update event_sequences s set last = number_events.last, behind = number_events.behind where s.tenant_id = tenant;
end
$$;

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
    perform from events e where e.tenant_id = workspace and e.sequence is null order by e.id limit 1;
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
