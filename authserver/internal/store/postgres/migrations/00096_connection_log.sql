-- How far connectors got (package walk). Most of it is read off the grants and their events; what stopped before there was a grant is
-- kept here: one row for each connector, person, reason and clock hour, which later ones of that hour bring up to date.

-- +goose Up
create table account.connection_stops (
  id uuid primary key,
  tenant_id uuid not null references account.tenants,
  client_id uuid not null references account.oauth_clients,
  user_id uuid references account.users, -- null: nobody was signed in, or it cannot be known
  stray boolean not null, -- a token request that belongs to no approval known here; otherwise an authorization request
  outcome text not null check (outcome in ('waiting', 'refused', 'denied')),
  reason text not null,
  request_id text not null,
  at timestamptz not null default now()
);
create unique index connection_stops_once on account.connection_stops
  (tenant_id, client_id, coalesce(user_id, '00000000-0000-0000-0000-000000000000'), stray, reason, date_trunc('hour', at at time zone 'UTC'));
create index connection_stops_latest on account.connection_stops (tenant_id, client_id, at desc);
grant select, insert, update, delete on account.connection_stops to almoner_authserver;

create index audit_events_by_subject on account.audit_events (subject, at desc);

-- When an access token of the grant was first used. No index: note_use is a HOT update.
alter table account.grants add column first_used_at timestamptz;

-- +goose StatementBegin
create or replace function account.note_use(pats uuid[], grant_ids uuid[])
returns void
language sql volatile security definer
set search_path = account, pg_temp
as $$
  update personal_access_tokens set last_used_at = now()
    where id = any (pats) and (last_used_at is null or last_used_at < now() - interval '1 hour');
  with ended as (
    update personal_access_tokens old set revoked_at = now(), revoke_reason = 'replaced'
    from personal_access_tokens new
    where new.id = any (pats) and old.id = new.replaces_id and old.user_id = new.user_id and old.revoked_at is null
    returning old.id, old.tenant_id, old.user_id, new.id as successor
  )
  insert into audit_events (id, tenant_id, user_id, actor, action, subject, detail)
    select gen_random_uuid(), tenant_id, user_id, 'system', 'token.revoked', 'token:' || id,
      jsonb_build_object('reason', 'replaced', 'successor', successor)
    from ended;
  update grants set first_used_at = coalesce(first_used_at, now()),
      last_used_at = case when last_used_at < now() - interval '1 hour' then now() else coalesce(last_used_at, now()) end
    where id = any (grant_ids) and (first_used_at is null or last_used_at is null or last_used_at < now() - interval '1 hour');
$$;
-- +goose StatementEnd

-- +goose Down
select 1 / 0; -- forward only
