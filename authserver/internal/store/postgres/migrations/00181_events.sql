-- Events: what changed in a workspace, for integrations (contract, section 6a). Each change writes its event in its own transaction,
-- without waiting for other changes of the workspace. The sequence is given later, when events are read: only to committed events, under
-- a lock of the workspace's counter. So no event appears with a sequence below one that could be read already.

-- +goose Up
create table account.events (
  id bigint generated always as identity primary key,
  tenant_id uuid not null,
  type text not null,
  data jsonb not null, -- ids and names of fields, never values
  created_at timestamptz not null default clock_timestamp(),
  sequence bigint -- null until the event is first read
);
create unique index events_by_sequence on account.events (tenant_id, sequence) where sequence is not null;
create index events_without_sequence on account.events (tenant_id, id) where sequence is null;
create index events_by_age on account.events (created_at);

create table account.event_sequences (
  tenant_id uuid primary key,
  last bigint not null
);

-- add_event also deletes a few events that are older than 30 days, so that the table does not grow beyond them.
-- +goose StatementBegin
create function account.add_event(tenant uuid, kind text, subject uuid, changed text[]) returns void
language plpgsql volatile security definer
set search_path = account, pg_temp
as $$
begin
  insert into events (tenant_id, type, data)
  values (tenant, kind, jsonb_build_object('id', subject) ||
    case when changed is null then '{}' else jsonb_build_object('changed', changed) end);
  delete from events where id in (
    select id from events where created_at < now() - interval '30 days' order by created_at limit 3 for update skip locked);
end
$$;
-- +goose StatementEnd

-- read_events returns events of a workspace after a sequence, oldest first, of the subjects in kinds (programme, form, ...).
-- +goose StatementBegin
create function account.read_events(tenant uuid, after bigint, kinds text[], most integer)
returns table (sequence bigint, type text, data jsonb, created_at timestamptz)
language plpgsql volatile security definer
set search_path = account, pg_temp
as $$
declare
  former bigint;
  numbered bigint;
begin
  if exists (select from events e where e.tenant_id = tenant and e.sequence is null) then
    insert into event_sequences (tenant_id, last) values (tenant, 0) on conflict do nothing;
    select s.last into former from event_sequences s where s.tenant_id = tenant for update;
    -- A new statement: it sees what the transaction that held the lock has numbered.
    update events e set sequence = former + n.number
    from (select u.id, row_number() over (order by u.id) as number from events u
      where u.tenant_id = tenant and u.sequence is null) n
    where e.id = n.id;
    get diagnostics numbered = row_count;
    update event_sequences s set last = former + numbered where s.tenant_id = tenant;
  end if;
  return query select e.sequence, e.type, e.data, e.created_at from events e
    where e.tenant_id = tenant and e.sequence > after and e.created_at > now() - interval '30 days'
      and split_part(e.type, '.', 1) = any (kinds)
    order by e.sequence limit most;
end
$$;
-- +goose StatementEnd

revoke all on function account.add_event, account.read_events from public;
grant execute on function account.add_event to almoner_authserver, almoner_resourceapi;
grant execute on function account.read_events to almoner_resourceapi;

-- +goose StatementBegin
create function account.note_membership() returns trigger language plpgsql security definer set search_path = account, pg_temp as $$
begin
  if tg_op = 'INSERT' then
    perform add_event(new.tenant_id, 'member.added', new.user_id, null);
  elsif tg_op = 'DELETE' then
    perform add_event(old.tenant_id, 'member.removed', old.user_id, null);
  else
    perform add_event(new.tenant_id, 'member.updated', new.user_id, array['permissions']);
  end if;
  return null;
end
$$;
-- +goose StatementEnd
create trigger note_membership after insert or delete on account.memberships
  for each row execute function account.note_membership();
create trigger note_permissions after update on account.memberships
  for each row when (old.permissions is distinct from new.permissions) execute function account.note_membership();

-- A connection is approved when its code is redeemed: an approval whose code is never used connects nothing.
-- +goose StatementBegin
create function account.note_connection() returns trigger language plpgsql security definer set search_path = account, pg_temp as $$
begin
  perform add_event(new.tenant_id, case new.state when 'active' then 'connection.approved' else 'connection.ended' end, new.id, null);
  return null;
end
$$;
-- +goose StatementEnd
create trigger note_connection after update on account.grants
  for each row when (old.state is distinct from new.state and (new.state = 'active' or old.state = 'active'))
  execute function account.note_connection();
create trigger note_new_connection after insert on account.grants
  for each row when (new.state = 'active') execute function account.note_connection();

-- +goose Down
select 1 / 0; -- forward only
