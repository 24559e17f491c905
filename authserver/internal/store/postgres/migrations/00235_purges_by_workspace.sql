-- Deletions of old records that a distributed Postgres accepts: it locks rows of one workspace in one statement, and has no
-- ctid. The previous release goes on with its own statements.

-- +goose Up
-- The table keeps the messages of one day, so it is small.
alter table account.invitation_messages add column id uuid not null default gen_random_uuid();
alter table account.invitation_messages add primary key (tenant_id, id);

-- +goose StatementBegin
create function account.delete_grants(before timestamptz, most integer) returns integer
language plpgsql volatile
set search_path = account, pg_temp
as $$
declare
  owners uuid[];
  ids uuid[];
  ends timestamptz[];
  last_end timestamptz := '-infinity';
  last_id uuid := '00000000-0000-0000-0000-000000000000';
  due record;
  part integer;
  deleted integer := 0;
begin
  while deleted < most loop -- more than once if rows are locked, which are left out
    select array_agg(o.tenant_id), array_agg(o.id), array_agg(o.ends_at) into owners, ids, ends
    from (
      select g.tenant_id, g.id, g.ends_at from grants g
      where g.ends_at < before and (g.ends_at, g.id) > (last_end, last_id) order by g.ends_at, g.id limit most - deleted
    ) o;
    exit when ids is null;
    last_end := ends[cardinality(ends)];
    last_id := ids[cardinality(ids)];
    for due in
      select u.owner, array_agg(u.id) ids from unnest(owners, ids) u (owner, id) group by u.owner order by u.owner
    loop
      delete from grants d where d.tenant_id = due.owner and d.id = any (array(
        select g.id from grants g where g.tenant_id = due.owner and g.id = any (due.ids) and g.ends_at < before
        for update skip locked));
      get diagnostics part = row_count;
      deleted := deleted + part;
    end loop;
  end loop;
  return deleted;
end
$$;

-- A client is deleted after all its grants. Its row is locked before they are looked for, so that none can be added.
create function account.delete_clients(before timestamptz, most integer) returns integer
language plpgsql volatile
set search_path = account, pg_temp
as $$
declare
  due uuid;
  deleted integer := 0;
begin
  for due in select c.id from oauth_clients c where c.deleted_at < before order by c.deleted_at loop
    exit when deleted >= most;
    perform from grants g where g.client_id = due limit 1;
    continue when found;
    perform from oauth_clients c where c.id = due for update skip locked;
    continue when not found;
    perform from grants g where g.client_id = due limit 1; -- a new statement: it sees what was committed before the lock
    continue when found;
    delete from client_secrets s where s.client_id = due;
    delete from connection_stops s where s.client_id = due;
    delete from oauth_clients c where c.id = due;
    deleted := deleted + 1;
  end loop;
  return deleted;
end
$$;
-- +goose StatementEnd

revoke all on function account.delete_grants, account.delete_clients from public;
grant execute on function account.delete_grants, account.delete_clients to almoner_authserver;

-- +goose Down
select 1 / 0; -- forward only
