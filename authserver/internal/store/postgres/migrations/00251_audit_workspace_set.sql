-- +goose NO TRANSACTION
-- The audit events outside workspaces get the nil UUID, a few thousand at a time in the order of their times.

-- +goose Up
-- +goose StatementBegin
create or replace procedure account.set_audit_workspaces() language plpgsql as $$
declare
  most constant integer := 5000;
  done timestamptz := '-infinity';
  until timestamptz;
begin
  loop
    select max(at) into until from (
      select at from account.audit_events where at > done order by at limit most) batch;
    exit when until is null;
    update account.audit_events set tenant_id = '00000000-0000-0000-0000-000000000000'
      where at > done and at <= until and tenant_id is null;
    commit;
    done := until;
  end loop;
end
$$;
-- +goose StatementEnd
call account.set_audit_workspaces();
drop procedure account.set_audit_workspaces();
alter table account.audit_events validate constraint audit_events_workspace;
alter table account.audit_events alter column tenant_id set not null;

-- +goose Down
select 1 / 0; -- forward only
