-- In a distributed database every node has a copy of forms and runs its trigger: only the coordinator writes the event.

-- +goose Up
-- +goose StatementBegin
create function resource.is_coordinator() returns boolean language plpgsql stable set search_path = pg_catalog as $$
declare
  coordinator boolean := true;
begin
  if to_regclass('pg_catalog.pg_dist_local_group') is not null then
    execute 'select groupid = 0 from pg_catalog.pg_dist_local_group' into coordinator;
  end if;
  return coordinator;
end
$$;

create or replace function resource.note_event() returns trigger language plpgsql as $$
declare
  changed text[];
begin
  if to_regprocedure('account.add_event(uuid, text, uuid, text[])') is null then
    return null;
  end if;
  if tg_argv[0] = 'form' and not resource.is_coordinator() then
    return null;
  end if;
  if tg_op = 'INSERT' then
    perform account.add_event(new.tenant_id, tg_argv[0] || '.created', new.id, null);
  elsif tg_op = 'DELETE' then
    perform account.add_event(old.tenant_id, tg_argv[0] || '.deleted', old.id, null);
  else
    select array_agg(distinct field.value order by field.value) into changed
    from jsonb_each_text(tg_argv[1]::jsonb) field
    where to_jsonb(old) -> field.key is distinct from to_jsonb(new) -> field.key;
    if changed is not null then
      perform account.add_event(new.tenant_id, tg_argv[0] || '.updated', new.id, changed);
    end if;
  end if;
  return null;
end
$$;
-- +goose StatementEnd

revoke all on function resource.is_coordinator() from public;
grant execute on function resource.is_coordinator() to almoner_resourceapi;

-- +goose Down
select 1 / 0; -- forward only
