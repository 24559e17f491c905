-- The workspace of a delivery, for its key (migration 304). The previous release inserts deliveries without it: the trigger adds
-- it. The next release drops the trigger.

-- +goose Up
alter table account.webhook_deliveries add column tenant_id uuid;
alter table account.webhook_deliveries add constraint webhook_deliveries_workspace check (tenant_id is not null) not valid;

-- +goose StatementBegin
create function account.add_workspace_of_delivery() returns trigger
language plpgsql set search_path = account, pg_temp as $$
begin
  select w.tenant_id into new.tenant_id from webhooks w where w.id = new.webhook_id;
  return new;
end
$$;
-- +goose StatementEnd
create trigger add_workspace before insert on account.webhook_deliveries
  for each row when (new.tenant_id is null) execute function account.add_workspace_of_delivery();

-- +goose Down
select 1 / 0; -- forward only
