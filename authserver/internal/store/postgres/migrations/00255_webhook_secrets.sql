-- The secret of a webhook endpoint can be replaced. Events are signed with the former secret too until former_until.
-- resourceapi records in the audit log that a secret was replaced, and that submissions were exported.

-- +goose Up
alter table account.webhooks
  add column secret_id uuid, -- of the request that replaced the secret
  add column former_secret bytea, -- sealed like secret
  add column former_secret_key bytea,
  add column former_until timestamptz;

-- +goose StatementBegin
create or replace function account.record_webhook(
  event uuid, tenant uuid, by_user uuid, happened text, webhook uuid, detail jsonb, request text
) returns void
language plpgsql volatile security definer
set search_path = account, pg_temp
as $$
begin
  if happened not in ('webhook.added', 'webhook.deleted', 'webhook.enabled', 'webhook.disabled', 'webhook.secret_replaced') then
    raise exception 'nothing that happens to a webhook endpoint';
  end if;
  insert into audit_events (id, tenant_id, user_id, actor, action, subject, detail, request_id)
  values (event, tenant, by_user, coalesce('user:' || by_user, 'system'), happened, 'webhook:' || webhook, detail, request);
end
$$;

create function account.record_export(event uuid, tenant uuid, by_user uuid, form uuid, detail jsonb, request text) returns void
language sql volatile security definer
set search_path = account, pg_temp
as $$
  insert into audit_events (id, tenant_id, user_id, actor, action, subject, detail, request_id)
  values (event, tenant, by_user, 'user:' || by_user, 'form.exported', 'form:' || form, detail, request)
$$;

-- read_events returns events of a workspace after a sequence, oldest first, of the subjects in kinds (programme, form, ...).
create or replace function account.read_events(tenant uuid, after bigint, kinds text[], most integer)
returns table (sequence bigint, type text, data jsonb, created_at timestamptz)
language plpgsql volatile security definer
set search_path = account, pg_temp
as $$
begin
  perform number_events(tenant);
  return query select e.sequence, e.type, e.data, e.created_at from events e
    where e.tenant_id = tenant and e.sequence > after and e.created_at > now() - interval '30 days'
      and split_part(e.type, '.', 1) = any (kinds)
    order by e.sequence limit most;
end
$$;
-- +goose StatementEnd
revoke all on function account.record_export from public;
grant execute on function account.record_export to almoner_resourceapi;

-- +goose Down
select 1 / 0; -- forward only
