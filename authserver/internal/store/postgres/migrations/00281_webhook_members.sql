-- resourceapi reads the member that an event is about, and records changes of webhook endpoints.

-- +goose Up
-- +goose StatementBegin
create or replace function account.record_webhook(
  event uuid, tenant uuid, by_user uuid, happened text, webhook uuid, detail jsonb, request text
) returns void
language plpgsql volatile security definer
set search_path = account, pg_temp
as $$
begin
  if happened not in ('webhook.added', 'webhook.changed', 'webhook.deleted', 'webhook.enabled', 'webhook.disabled',
      'webhook.secret_replaced') then
    raise exception 'nothing that happens to a webhook endpoint';
  end if;
  insert into audit_events (id, tenant_id, user_id, actor, action, subject, detail, request_id)
  values (event, tenant, by_user, coalesce('user:' || by_user, 'system'), happened, 'webhook:' || webhook, detail, request);
end
$$;

-- webhook_member returns a member of the workspace, or no row.
create function account.webhook_member(tenant uuid, member uuid) returns table (name text, email text)
language sql stable security definer
set search_path = account, pg_temp
as $$
  select u.name, u.email from memberships m join users u on u.id = m.user_id
  where m.tenant_id = tenant and m.user_id = member
$$;
-- +goose StatementEnd
revoke all on function account.webhook_member from public;
grant execute on function account.webhook_member to almoner_resourceapi;

-- +goose Down
select 1 / 0; -- forward only
