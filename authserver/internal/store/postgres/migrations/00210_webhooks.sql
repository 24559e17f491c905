-- Webhooks: endpoints that resourceapi's worker sends the events of a workspace to (contract, section 6a). A workspace manages them with
-- resourceapi's API or on authserver's page, so both services read and write these tables.

-- +goose Up
create table account.webhooks (
  id uuid primary key,
  tenant_id uuid not null references account.tenants (id) on delete cascade,
  user_id uuid not null references account.users (id) on delete cascade, -- who added it, or enabled it last: events that this user may read are sent
  url text not null check (octet_length(url) <= 2048),
  types text[] not null check (cardinality(types) > 0),
  secret bytea not null,     -- sealed for resourceapi (shared/webhook)
  secret_key bytea not null, -- the public key that it is sealed with
  enabled boolean not null default true,
  reason text check (reason in ('user', 'failing', 'gone', 'permission')), -- why it is not enabled
  disabled_at timestamptz,
  mail_due boolean not null default false, -- authserver still has to tell the user that it was disabled
  position bigint not null,                -- sequence of the last event that was sent or left out
  failures integer not null default 0,     -- attempts since the last success
  failing_since timestamptz,
  next_try_at timestamptz not null default now(),
  tried_at timestamptz,
  created_at timestamptz not null,
  check (enabled = (reason is null) and enabled = (disabled_at is null))
);
create index webhooks_by_workspace on account.webhooks (tenant_id, created_at desc, id desc);
create index webhooks_by_user on account.webhooks (user_id);
create index webhooks_enabled on account.webhooks (tenant_id) where enabled;
create index webhooks_with_mail on account.webhooks (id) where mail_due;

-- The log: one row for each attempt, and for each test or repeated delivery that waits. The body is made again from the event.
create table account.webhook_deliveries (
  id uuid primary key,
  webhook_id uuid not null references account.webhooks (id) on delete cascade,
  created_at timestamptz not null default clock_timestamp(),
  cause text not null check (cause in ('event', 'resend', 'test')),
  type text not null,
  sequence bigint,       -- null for a test
  tried_at timestamptz,  -- null while it waits
  status smallint,       -- of the response
  problem text,          -- why it was not accepted, or null
  took_ms integer,
  check ((sequence is null) = (cause = 'test'))
);
create index webhook_deliveries_list on account.webhook_deliveries (webhook_id, created_at desc, id desc);
create index webhook_deliveries_waiting on account.webhook_deliveries (webhook_id, created_at) where tried_at is null;
create index webhook_deliveries_by_age on account.webhook_deliveries (created_at);

-- Public keys of resourceapi. Secrets are sealed with the one that was published last.
create table account.webhook_keys (
  public_key bytea primary key check (length(public_key) = 32),
  published_at timestamptz not null default clock_timestamp()
);

grant select, insert, update, delete on account.webhooks, account.webhook_deliveries to almoner_authserver, almoner_resourceapi;
grant select on account.webhook_keys to almoner_authserver;
grant select, insert, update on account.webhook_keys to almoner_resourceapi;

-- number_events gives the committed events of a workspace their sequence, and returns the last one. read_events does the same.
-- +goose StatementBegin
create function account.number_events(tenant uuid) returns bigint
language plpgsql volatile security definer
set search_path = account, pg_temp
as $$
declare
  former bigint;
  numbered bigint;
begin
  if exists (select from events e where e.tenant_id = tenant and e.sequence is null) then
    insert into event_sequences (tenant_id, last) values (tenant, 0) on conflict do nothing;
    select s.last into former from event_sequences s where s.tenant_id = tenant for update;
    -- A new statement: it sees what the transaction that held the lock has numbered.
    update events e set sequence = former + n.number
    from (select u.id, row_number() over (order by u.id) as number from events u
      where u.tenant_id = tenant and u.sequence is null) n
    where e.id = n.id;
    get diagnostics numbered = row_count;
    update event_sequences s set last = former + numbered where s.tenant_id = tenant;
  end if;
  return coalesce((select s.last from event_sequences s where s.tenant_id = tenant), 0);
end
$$;

-- add_webhook adds an endpoint that gets the events from now on. It returns added, full if the workspace has that many, or exists.
create function account.add_webhook(
  webhook uuid, tenant uuid, by_user uuid, address text, kinds text[], sealed bytea, sealed_for bytea, most integer
) returns text
language plpgsql volatile security definer
set search_path = account, pg_temp
as $$
begin
  -- One at a time for each workspace: the list is in the order of created_at, and the number is bounded.
  perform from tenants t where t.id = tenant for no key update;
  if exists (select from webhooks w where w.id = webhook) then
    return 'exists';
  end if;
  if (select count(*) from webhooks w where w.tenant_id = tenant) >= most then
    return 'full';
  end if;
  insert into webhooks (id, tenant_id, user_id, url, types, secret, secret_key, position, created_at)
  values (webhook, tenant, by_user, address, kinds, sealed, sealed_for, number_events(tenant), clock_timestamp());
  return 'added';
end
$$;

-- webhook_standing returns what the user of an endpoint may do in its workspace, or null if the user is disabled or no member.
create function account.webhook_standing(webhook uuid) returns text[]
language sql stable security definer
set search_path = account, pg_temp
as $$
  select m.permissions from webhooks w join memberships m on m.tenant_id = w.tenant_id and m.user_id = w.user_id
  join users u on u.id = m.user_id
  where w.id = webhook and u.disabled_at is null
$$;

-- next_webhook_event returns the first event of the types after a sequence, and the last sequence of the workspace. The first columns are
-- null if there is none.
create function account.next_webhook_event(tenant uuid, after bigint, kinds text[])
returns table (sequence bigint, type text, data jsonb, created_at timestamptz, last bigint)
language plpgsql volatile security definer
set search_path = account, pg_temp
as $$
declare
  final bigint := number_events(tenant);
begin
  return query select e.sequence, e.type, e.data, e.created_at, final
    from (select) one left join lateral (
      select * from events v
      where v.tenant_id = tenant and v.sequence > after and v.sequence <= final and v.type = any (kinds)
        and v.created_at > now() - interval '30 days'
      order by v.sequence limit 1
    ) e on true;
end
$$;

-- webhook_event returns one event, for a repeated delivery.
create function account.webhook_event(tenant uuid, asked bigint)
returns table (sequence bigint, type text, data jsonb, created_at timestamptz)
language sql stable security definer
set search_path = account, pg_temp
as $$
  select e.sequence, e.type, e.data, e.created_at from events e where e.tenant_id = tenant and e.sequence = asked
$$;

-- webhooks_due returns endpoints with something to send, those first that were tried longest ago.
create function account.webhooks_due(most integer) returns table (webhook uuid, tenant uuid)
language sql stable security definer
set search_path = account, pg_temp
as $$
  select w.id, w.tenant_id from webhooks w
  where (w.enabled and w.next_try_at <= now() and (
      exists (select from event_sequences s where s.tenant_id = w.tenant_id and s.last > w.position)
      or exists (select from events e where e.tenant_id = w.tenant_id and e.sequence is null)))
    or w.id in (select d.webhook_id from webhook_deliveries d where d.tried_at is null)
  order by w.tried_at nulls first limit most
$$;

-- record_webhook records in the audit log what happened to an endpoint. by_user is null if the service disabled it.
create function account.record_webhook(
  event uuid, tenant uuid, by_user uuid, happened text, webhook uuid, detail jsonb, request text
) returns void
language plpgsql volatile security definer
set search_path = account, pg_temp
as $$
begin
  if happened not in ('webhook.added', 'webhook.deleted', 'webhook.enabled', 'webhook.disabled') then
    raise exception 'nothing that happens to a webhook endpoint';
  end if;
  insert into audit_events (id, tenant_id, user_id, actor, action, subject, detail, request_id)
  values (event, tenant, by_user, coalesce('user:' || by_user, 'system'), happened, 'webhook:' || webhook, detail, request);
end
$$;
-- +goose StatementEnd

revoke all on function account.number_events, account.add_webhook, account.webhook_standing, account.next_webhook_event,
  account.webhook_event, account.webhooks_due, account.record_webhook from public;
grant execute on function account.add_webhook to almoner_authserver, almoner_resourceapi;
grant execute on function account.webhook_standing, account.next_webhook_event, account.webhook_event, account.webhooks_due,
  account.record_webhook to almoner_resourceapi;

-- +goose Down
select 1 / 0; -- forward only
