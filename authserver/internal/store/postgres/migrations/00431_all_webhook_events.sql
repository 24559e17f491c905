-- An endpoint can get all events that its user may read, also of types that later releases add. Its column types has those that the user
-- could read when they were chosen: an earlier release sends these.

-- +goose Up
alter table account.webhooks add column all_types boolean not null default false;

-- +goose StatementBegin
-- add_webhook is the function of migration 340 with all_types.
create function account.add_webhook(
  webhook uuid, tenant uuid, by_user uuid, address text, kinds text[], sealed bytea, sealed_for bytea, most integer,
  by_token uuid, by_grant uuid, all_kinds boolean
) returns text
language plpgsql volatile security definer
set search_path = account, pg_temp
as $$
begin
  -- One at a time for each workspace: the list is in the order of created_at, and the number is bounded.
  perform from tenants t where t.id = tenant for no key update;
  if exists (select from webhooks w where w.tenant_id = tenant and w.id = webhook) then
    return 'exists';
  end if;
  if (select count(*) from webhooks w where w.tenant_id = tenant) >= most then
    return 'full';
  end if;
  insert into webhooks
    (id, tenant_id, user_id, url, types, all_types, secret, secret_key, position, created_at, token_id, grant_id, added_mail_due)
  values (webhook, tenant, by_user, address, kinds, all_kinds, sealed, sealed_for, number_events(tenant), clock_timestamp(), by_token,
    by_grant, by_token is not null or by_grant is not null); -- the page queues its mails itself
  return 'added';
end
$$;
-- +goose StatementEnd
revoke all on function account.add_webhook(uuid, uuid, uuid, text, text[], bytea, bytea, integer, uuid, uuid, boolean) from public;
grant execute on function account.add_webhook(uuid, uuid, uuid, text, text[], bytea, bytea, integer, uuid, uuid, boolean)
  to almoner_authserver, almoner_resourceapi;

-- +goose Down
select 1 / 0; -- forward only
