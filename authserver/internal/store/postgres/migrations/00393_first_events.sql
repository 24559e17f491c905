-- A workspace whose endpoint an early release added has no counter of its events before the first of them: it is unread as well.

-- +goose Up
-- +goose StatementBegin
create or replace function account.followed_workspaces(after uuid, most integer) returns table (tenant uuid, unread boolean)
language plpgsql stable security definer
set search_path = account, pg_temp
as $$
declare
  workspaces uuid[];
  counted uuid[];
  waiting uuid[];
begin
  workspaces := array(
    select distinct w.tenant_id from webhooks w where w.enabled and w.tenant_id > after order by w.tenant_id limit most);
  counted := array(select s.tenant_id from event_sequences s where s.tenant_id = any (workspaces));
  waiting := unread_workspaces(
    array(select s.tenant_id from event_sequences s where s.tenant_id = any (workspaces) and not s.behind));
  return query select f.id, f.id = any (waiting) or f.id <> all (counted) from unnest(workspaces) f (id);
end
$$;
-- +goose StatementEnd

-- +goose Down
select 1 / 0; -- forward only
