-- account.standing for several questions in one call, as a call costs Postgres several times what another question in it does. The
-- programs that are older than this file go on asking account.standing, which asks this one now: there is one text of the rules.

-- +goose Up
-- +goose StatementBegin
create function account.standings(pat_hashes bytea[], grant_ids uuid[], tenants uuid[], modules text[]) -- all of one length
returns table (
  place bigint,                   -- of the question, from 1 on; no row where there is no such credential
  credential_id uuid,
  kind text,                      -- personal_access_token, confidential, connector
  state text,                     -- active, pending, revoked, expired, user_disabled
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
  module_provisioned boolean
)
language plpgsql stable parallel safe security definer
set search_path = account, pg_temp
as $$
begin
  return query
    -- The arrays are in subqueries, so that no plan is better for knowing them and Postgres keeps the one that it has made. The limit has
    -- it look up each question by itself, by the keys: it never reads a table for all of them.
    select asked.place, answer.*
    from unnest((select pat_hashes), (select grant_ids), (select tenants), (select modules))
      with ordinality asked (pat_hash, grant_id, tenant, module, place)
    cross join lateral (
      select c.id, c.kind, case when c.state = 'active' and u.disabled_at is not null then 'user_disabled' else c.state end,
        c.user_id, c.client_id, c.tenant_id, c.permissions, c.resource, c.ends_at,
        m.user_id is not null, coalesce(m.permissions, '{}'),
        coalesce(f.enabled, false), coalesce(d.enabled, false), coalesce(d.provisioned, false)
      from (
        select p.id, 'personal_access_token'::text kind,
          case when p.revoked_at is not null then 'revoked' when p.expires_at <= now() then 'expired' else 'active' end state,
          p.user_id, null::uuid client_id, p.tenant_id, p.permissions, null::text resource, p.expires_at ends_at
        from personal_access_tokens p
        where p.hash = asked.pat_hash
        union all
        select g.id, g.kind,
          case when g.state = 'active' and g.ends_at <= now() then 'expired' else g.state end,
          g.user_id, g.client_id, g.tenant_id, g.permissions, g.resource, g.ends_at
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

create or replace function account.standing(pat_hash bytea, grant_id uuid, tenant uuid, module_name text)
returns table (
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
    select s.credential_id, s.kind, s.state, s.user_id, s.client_id, s.credential_tenant, s.credential_permissions, s.resource, s.ends_at,
      s.member, s.member_permissions, s.llm_integration, s.module_enabled, s.module_provisioned
    from standings(array[pat_hash], array[grant_id], array[tenant], array[module_name]) s;
end
$$;
-- +goose StatementEnd

revoke all on function account.standings from public;
grant execute on function account.standings to almoner_authserver, almoner_resourceapi;

-- +goose Down
select 1 / 0; -- forward only
