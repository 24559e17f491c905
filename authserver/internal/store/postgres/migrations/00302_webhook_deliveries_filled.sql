-- +goose NO TRANSACTION
-- The workspaces of the deliveries before migration 301, a few thousand at a time.

-- +goose Up
-- +goose StatementBegin
create or replace procedure account.fill_webhook_deliveries() language plpgsql as $$
declare
  most constant integer := 5000;
  done uuid := '00000000-0000-0000-0000-000000000000';
  until uuid;
begin
  loop
    select b.id into until from (
      select d.id from account.webhook_deliveries d where d.id > done order by d.id limit most) b
      order by b.id desc limit 1;
    exit when until is null;
    update account.webhook_deliveries d set tenant_id = w.tenant_id from account.webhooks w
      where d.id > done and d.id <= until and d.tenant_id is null and w.id = d.webhook_id;
    commit;
    done := until;
  end loop;
end
$$;
-- +goose StatementEnd
call account.fill_webhook_deliveries();
drop procedure account.fill_webhook_deliveries();
alter table account.webhook_deliveries validate constraint webhook_deliveries_workspace;

-- +goose Down
select 1 / 0; -- forward only
