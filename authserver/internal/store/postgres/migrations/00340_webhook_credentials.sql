-- A webhook endpoint that a personal access token or an OAuth grant added ends with that credential (contract, section 6a). Endpoints
-- that a page added, and those added before this file, have neither: they get what their user may read.

-- +goose Up
alter table account.webhooks
  add column token_id uuid, -- the credential that added it, or enabled it last
  add column grant_id uuid,
  add column added_mail_due boolean not null default false; -- authserver still has to tell the members that it was added

-- +goose StatementBegin
-- add_webhook is the function of migration 210 with the credential that adds the endpoint. One of the two is null, or both.
create function account.add_webhook(
  webhook uuid, tenant uuid, by_user uuid, address text, kinds text[], sealed bytea, sealed_for bytea, most integer,
  by_token uuid, by_grant uuid
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
  insert into webhooks (id, tenant_id, user_id, url, types, secret, secret_key, position, created_at, token_id, grant_id, added_mail_due)
  values (webhook, tenant, by_user, address, kinds, sealed, sealed_for, number_events(tenant), clock_timestamp(), by_token, by_grant,
    by_token is not null or by_grant is not null); -- the page queues its mails itself
  return 'added';
end
$$;

-- webhook_standing returns what an endpoint may get: what its user may do in the workspace and, if a credential added it, what that
-- credential may do too. It is null if the user is disabled or no member, or if the credential has ended.
create or replace function account.webhook_standing(tenant uuid, webhook uuid) returns text[]
language plpgsql stable security definer
set search_path = account, pg_temp
as $$
declare
  made record;
  held text[];
  given text[];
begin
  select w.user_id, w.token_id, w.grant_id into made from webhooks w where w.tenant_id = tenant and w.id = webhook;
  select m.permissions into held from memberships m join users u on u.id = m.user_id
    where m.tenant_id = tenant and m.user_id = made.user_id and u.disabled_at is null;
  if held is null or (made.token_id is null and made.grant_id is null) then
    return held;
  end if;
  select p.permissions into given from personal_access_tokens p
    where p.id = made.token_id and p.tenant_id = tenant and p.revoked_at is null and p.expires_at > now();
  if made.grant_id is not null then
    select g.permissions into given from grants g
      where g.tenant_id = tenant and g.id = made.grant_id and g.state = 'active' and g.ends_at > now();
  end if;
  if given is null then
    return null;
  end if;
  return array(select p from unnest(held) p where p = any (given));
end
$$;
-- +goose StatementEnd
revoke all on function account.add_webhook(uuid, uuid, uuid, text, text[], bytea, bytea, integer, uuid, uuid) from public;
grant execute on function account.add_webhook(uuid, uuid, uuid, text, text[], bytea, bytea, integer, uuid, uuid)
  to almoner_authserver, almoner_resourceapi;

-- +goose Down
select 1 / 0; -- forward only
