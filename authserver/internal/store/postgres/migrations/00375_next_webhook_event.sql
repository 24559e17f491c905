-- next_webhook_event leaves a backlog to the worker that assigns sequences to it and rests between its steps: a delivery
-- goes from step to step without rest, and would use a whole processor. A workspace without a backlog gets its sequences
-- here, so that its next event is found at once.

-- +goose Up
-- +goose StatementBegin
create or replace function account.next_webhook_event(
  tenant uuid, after bigint, since timestamptz, kinds text[], step integer, examine integer
) returns table (sequence bigint, type text, data jsonb, created_at timestamptz)
language plpgsql volatile security definer
set search_path = account, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
as $$
declare
  final bigint;
  backlog boolean;
  examined bigint;
  reached bigint;
begin
  select s.last, s.behind into final, backlog from event_sequences s where s.tenant_id = tenant;
  if final is null or (final <= after and not backlog) then
    select n.last into final from number_events(tenant, step) n;
  end if;
  return query select e.sequence, e.type, e.data, e.created_at from (
      select * from events v
      where v.tenant_id = tenant and v.sequence > after and v.sequence <= final
        and v.created_at >= date_trunc('month', (now() - interval '30 days') at time zone 'UTC') at time zone 'UTC'
        and v.created_at < now() + interval '1 day'
      order by v.sequence limit examine
    ) e
    where e.type = any (kinds) and e.created_at > now() - interval '30 days' and e.created_at >= since
    order by e.sequence limit 1;
  if not found then
    select count(*), max(x.sequence) into examined, reached from (
      select v.sequence from events v
      where v.tenant_id = tenant and v.sequence > after and v.sequence <= final
        and v.created_at >= date_trunc('month', (now() - interval '30 days') at time zone 'UTC') at time zone 'UTC'
        and v.created_at < now() + interval '1 day'
      order by v.sequence limit examine
    ) x;
    if examined < examine then
      reached := final;
    end if;
    return query select greatest(reached, after), null::text, null::jsonb, null::timestamptz;
  end if;
end
$$;
-- +goose StatementEnd

-- +goose Down
select 1 / 0; -- forward only
