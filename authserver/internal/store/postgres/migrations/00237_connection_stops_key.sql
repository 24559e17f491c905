-- The primary key of a stopped attempt is its workspace and its id. Nothing refers to the former key, and no insert names it: its
-- ids are random. Old rows are deleted workspace by workspace, as those of grants (migration 235).

-- +goose Up
alter table account.connection_stops drop constraint connection_stops_pkey;
alter table account.connection_stops add constraint connection_stops_pkey
  primary key using index connection_stops_by_workspace;

-- +goose StatementBegin
create function account.delete_connection_stops(before timestamptz, most integer) returns integer
language plpgsql volatile
set search_path = account, pg_temp
as $$
declare
  due record;
  part integer;
  deleted integer := 0;
begin
  for due in
    select o.tenant_id, array_agg(o.id) ids
    from (select s.tenant_id, s.id from connection_stops s where s.at < before order by s.at limit most) o
    group by o.tenant_id order by o.tenant_id
  loop
    delete from connection_stops s where s.tenant_id = due.tenant_id and s.id = any (due.ids) and s.at < before;
    get diagnostics part = row_count;
    deleted := deleted + part;
  end loop;
  return deleted;
end
$$;
-- +goose StatementEnd

revoke all on function account.delete_connection_stops from public;
grant execute on function account.delete_connection_stops to almoner_authserver;

-- +goose Down
select 1 / 0; -- forward only
