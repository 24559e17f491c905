-- add_events stores many events in one statement. As one call of add_event for each, they took two thirds of the time of an import: each
-- opened and locked the months again.

-- +goose Up
-- +goose StatementBegin
-- The arrays have one length. changed has an array of names in JSON for each update, and null for other events.
create function account.add_events(tenants uuid[], kind text, subjects uuid[], changed jsonb[]) returns void
language sql volatile security definer
set search_path = account, pg_temp
as $$
  insert into events (tenant_id, type, data)
  select n.tenant, kind, jsonb_build_object('id', n.subject) ||
    case when n.fields is null then '{}' else jsonb_build_object('changed', n.fields) end
  from unnest(tenants, subjects, changed) with ordinality n (tenant, subject, fields, place) order by n.place
$$;
-- +goose StatementEnd

revoke all on function account.add_events from public;
grant execute on function account.add_events to almoner_resourceapi;

-- +goose Down
select 1 / 0; -- forward only
