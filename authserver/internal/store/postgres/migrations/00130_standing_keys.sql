-- account.standings also takes, for each access token, the identifier of the key that signed it, and answers whether that key is still
-- published. A key that an administrator removes is refused by the next request of every process, whatever public keys the process holds.
-- Programs older than this file ask account.standings with four arguments; it calls the new function, which is the one text of the rules.

-- +goose Up
-- +goose StatementBegin
create function account.standings(pat_hashes bytea[], grant_ids uuid[], tenants uuid[], modules text[], kids text[])
returns table (
  place bigint,                   -- of the question, from 1 on; no row where there is no such credential
  credential_id uuid,
  kind text,                      -- personal_access_token, confidential, connector
  state text,                     -- active, pending, revoked, expired, user_disabled, key_removed
  user_id uuid,
  client_id uuid,                 -- null for a personal access token
  credential_tenant uuid,
  credential_permissions text[],
  resource text,                  -- null for a personal access token
  ends_at timestamptz,
  member boolean,                 -- of the workspace asked for
  member_permissions text[],
  llm_integration boolean,
  module_enabled boolean,
  module_provisioned boolean,
  replaces boolean                -- a personal access token whose first use has to end those that it replaces (account.end_replaced)
)
language plpgsql stable parallel safe security definer
set search_path = account, pg_temp
as $$
begin
  return query
    -- The arrays are in subqueries, so that no plan is better for knowing them and Postgres keeps the one that it has made. The limit has
    -- it look up each question by itself, by the keys: it never reads a table for all of them.
    select asked.place, answer.*
    from unnest((select pat_hashes), (select grant_ids), (select tenants), (select modules), (select kids))
      with ordinality asked (pat_hash, grant_id, tenant, module, kid, place)
    cross join lateral (
      select c.id, c.kind,
        case
          when c.state <> 'active' then c.state
          when u.disabled_at is not null then 'user_disabled'
          -- A null kid is a personal access token's, or comes from a program that does not say it. A kid of no stored key counts as removed.
          -- The keys do not depend on the question, so Postgres reads them once for all questions.
          when asked.kid is not null
            and asked.kid <> all (array(select k.kid from signing_keys k where k.state <> 'removed')) then 'key_removed'
          else 'active'
        end,
        c.user_id, c.client_id, c.tenant_id, c.permissions, c.resource, c.ends_at,
        m.user_id is not null, coalesce(m.permissions, '{}'),
        coalesce(f.enabled, false), coalesce(d.enabled, false), coalesce(d.provisioned, false), c.replaces
      from (
        select p.id, 'personal_access_token'::text kind,
          case when p.revoked_at is not null then 'revoked' when p.expires_at <= now() then 'expired' else 'active' end state,
          p.user_id, null::uuid client_id, p.tenant_id, p.permissions, null::text resource, p.expires_at ends_at,
          p.replaces_id is not null and p.former_ended_at is null replaces
        from personal_access_tokens p
        where p.hash = asked.pat_hash
        union all
        select g.id, g.kind,
          case when g.state = 'active' and g.ends_at <= now() then 'expired' else g.state end,
          g.user_id, g.client_id, g.tenant_id, g.permissions, g.resource, g.ends_at, false
        from grants g
        where g.id = asked.grant_id and asked.pat_hash is null
      ) c
      join users u on u.id = c.user_id
      left join memberships m on m.tenant_id = coalesce(asked.tenant, c.tenant_id) and m.user_id = c.user_id
      left join tenant_features f on f.tenant_id = coalesce(asked.tenant, c.tenant_id) and f.feature = 'llm_integration'
      left join tenant_modules d on d.tenant_id = coalesce(asked.tenant, c.tenant_id) and d.module = asked.module
      limit 1
    ) answer;
end
$$;

create or replace function account.standings(pat_hashes bytea[], grant_ids uuid[], tenants uuid[], modules text[])
returns table (
  place bigint,
  credential_id uuid,
  kind text,
  state text,
  user_id uuid,
  client_id uuid,
  credential_tenant uuid,
  credential_permissions text[],
  resource text,
  ends_at timestamptz,
  member boolean,
  member_permissions text[],
  llm_integration boolean,
  module_enabled boolean,
  module_provisioned boolean
)
language plpgsql stable parallel safe security definer
set search_path = account, pg_temp
as $$
begin
  return query
    select s.place, s.credential_id, s.kind, s.state, s.user_id, s.client_id, s.credential_tenant, s.credential_permissions, s.resource,
      s.ends_at, s.member, s.member_permissions, s.llm_integration, s.module_enabled, s.module_provisioned
    from standings(pat_hashes, grant_ids, tenants, modules, null::text[]) s;
end
$$;
-- +goose StatementEnd

revoke all on function account.standings(bytea[], uuid[], uuid[], text[], text[]) from public;
grant execute on function account.standings(bytea[], uuid[], uuid[], text[], text[]) to almoner_authserver, almoner_resourceapi;

-- +goose Down
select 1 / 0; -- forward only
