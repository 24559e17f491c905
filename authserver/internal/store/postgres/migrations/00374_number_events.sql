-- number_events finds events without a sequence in the order of an index, and writes each by its key. As one statement with a join, and
-- statistics from before a backlog, it joined all events of that backlog, or read those of another workspace by their time. With Citus it
-- stays one statement, since each of many would be sent to a node.

-- +goose Up
-- +goose StatementBegin
create or replace function account.number_events(tenant uuid, most integer, out last bigint, out behind boolean)
language plpgsql volatile security definer
set search_path = account, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set enable_sort = off
as $$
declare
  unread boolean;
  one record;
  numbered bigint := 0;
begin
  perform from events e where e.tenant_id = tenant and e.sequence is null
    and e.created_at >= date_trunc('month', (now() - interval '30 days') at time zone 'UTC') at time zone 'UTC'
    and e.created_at < now() + interval '1 day'
  order by e.id limit 1;
  unread := found;
  -- After the events: what was read by then, others have counted.
  select s.last, s.behind into last, behind from event_sequences s where s.tenant_id = tenant;
  if behind is false and not unread then
    return;
  end if;
  insert into event_sequences (tenant_id, last) values (tenant, 0) on conflict do nothing;
  select s.last into last from event_sequences s where s.tenant_id = tenant for update;
  -- A new statement: it sees what the transaction that held the lock has numbered.
  if to_regclass('pg_catalog.pg_dist_partition') is null then
    for one in
      select v.id, v.created_at from events v where v.tenant_id = tenant and v.sequence is null
        and v.created_at >= date_trunc('month', (now() - interval '30 days') at time zone 'UTC') at time zone 'UTC'
        and v.created_at < now() + interval '1 day'
      order by v.id limit most
    loop
      update events e set sequence = number_events.last + numbered + 1
      where e.tenant_id = tenant and e.id = one.id and e.created_at = one.created_at;
      if found then -- retention may have deleted it
        numbered := numbered + 1;
      end if;
    end loop;
  else
    update events e set sequence = number_events.last + n.number
    from (
      select u.id, u.created_at, row_number() over (order by u.id) as number from (
        select v.id, v.created_at from events v
        where v.tenant_id = tenant and v.sequence is null
          and v.created_at >= date_trunc('month', (now() - interval '30 days') at time zone 'UTC') at time zone 'UTC'
          and v.created_at < now() + interval '1 day'
        order by v.id limit most
      ) u
    ) n
    where e.tenant_id = tenant and e.id = n.id and e.created_at = n.created_at;
    get diagnostics numbered = row_count;
  end if;
  last := last + numbered;
  behind := numbered >= most;
  update event_sequences s set last = number_events.last, behind = number_events.behind where s.tenant_id = tenant;
end
$$;
-- +goose StatementEnd

-- +goose Down
select 1 / 0; -- forward only
