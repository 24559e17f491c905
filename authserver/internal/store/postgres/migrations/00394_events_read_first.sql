-- events_after numbers events only if those that have a sequence do not fill the page. A client that reads many events that others have
-- numbered spent most of its time with looking for one without a sequence, behind the entries of those in the index that vacuum had not
-- removed yet.

-- +goose Up
-- +goose StatementBegin
create or replace function account.events_after(
  tenant uuid, after bigint, kinds text[], most integer, step integer, examine integer
) returns table (sequence bigint, type text, data jsonb, created_at timestamptz)
language plpgsql volatile security definer
set search_path = account, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
as $$
declare
  final bigint;
  unread boolean;
  numbered boolean := false;
  begins bigint := after;
  rows_now bigint;
  found_events bigint := 0;
  examined bigint;
  reached bigint;
begin
  select s.last, s.behind into final, unread from event_sequences s where s.tenant_id = tenant;
  if final is null or final - after < most then
    select n.last, n.behind into final, unread from number_events(tenant, step) n;
    numbered := true;
  end if;
  loop
    return query select e.sequence, e.type, e.data, e.created_at from (
        select * from events v
        where v.tenant_id = tenant and v.sequence > begins and v.sequence <= final
          and v.created_at >= date_trunc('month', (now() - interval '30 days') at time zone 'UTC') at time zone 'UTC'
        order by v.sequence limit examine
      ) e
      where e.created_at > now() - interval '30 days' and split_part(e.type, '.', 1) = any (kinds)
      order by e.sequence limit most - found_events;
    get diagnostics rows_now = row_count;
    found_events := found_events + rows_now;
    exit when numbered or found_events >= most or final - after >= examine;
    begins := final;
    select n.last, n.behind into final, unread from number_events(tenant, step) n;
    numbered := true;
    if final - begins > examine then -- others have numbered many meanwhile
      final := begins + examine;
      unread := true;
    end if;
  end loop;
  if found_events < most and begins > after then -- all up to final were examined
    if unread then
      return query select final, null::text, null::jsonb, null::timestamptz;
    end if;
  elsif found_events < most and after < final and (unread or final - after >= examine) then
    select count(*), max(x.sequence) into examined, reached from (
      select v.sequence from events v
      where v.tenant_id = tenant and v.sequence > after and v.sequence <= final
        and v.created_at >= date_trunc('month', (now() - interval '30 days') at time zone 'UTC') at time zone 'UTC'
      order by v.sequence limit examine
    ) x;
    if examined < examine then
      reached := final;
    end if;
    if unread or examined = examine then
      return query select reached, null::text, null::jsonb, null::timestamptz;
    end if;
  end if;
end
$$;
-- +goose StatementEnd

-- +goose Down
select 1 / 0; -- forward only
