-- The workspace of an audit event is never null: an event outside workspaces has the nil UUID. So the workspace can be part of the key.
-- The references to workspaces and users go: none of these is ever deleted, and dropping a month of events would lock account.users.

-- +goose Up
alter table account.audit_events drop constraint audit_events_tenant_id_fkey, drop constraint audit_events_user_id_fkey;

-- Programs older than this file insert null.
-- +goose StatementBegin
create function account.set_audit_workspace() returns trigger language plpgsql as $$
begin
  new.tenant_id := '00000000-0000-0000-0000-000000000000';
  return new;
end
$$;
-- +goose StatementEnd
create trigger set_audit_workspace before insert on account.audit_events
  for each row when (new.tenant_id is null) execute function account.set_audit_workspace();
alter table account.audit_events add constraint audit_events_workspace check (tenant_id is not null) not valid;

-- +goose Down
select 1 / 0; -- forward only
