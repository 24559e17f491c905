-- account.standings takes a fifth less time for grants if it does not look at account.endings, which is nearly always empty. So what it did
-- until now is account.limited_standings, and standings calls that only if a workspace of the grants has a row there. A personal access
-- token's workspace is not known before it is found, so both have the condition for tokens.

-- +goose Up
-- +goose StatementBegin
do $$
begin
  execute replace(pg_get_functiondef('account.standings(bytea[], uuid[], uuid[], uuid[], text[], text[])'::regprocedure),
    'FUNCTION account.standings(', 'FUNCTION account.limited_standings(');
end
$$;
revoke all on function account.limited_standings from public;

create or replace function account.standings(
  pat_hashes bytea[], grant_ids uuid[], grant_tenants uuid[], tenants uuid[], modules text[], kids text[]
) -- all of one length
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
declare
  at timestamptz := now();
  pat bytea;
  asked uuid;
  owner uuid;
  tenant uuid;
  wanted text;
  signer text;
begin
  if exists (select from endings e where e.tenant_id = any (grant_tenants)) then
    return query select * from limited_standings(pat_hashes, grant_ids, grant_tenants, tenants, modules, kids);
    return;
  end if;
  -- Several questions in one statement cost a third of what they cost one by one, but Citus, which has a table pg_dist_partition,
  -- refuses the lateral subquery. The two forms answer alike (TestStanding_BatchEqualsSingleQueries).
  if cardinality(pat_hashes) > 1 and to_regclass('pg_dist_partition') is null then
    return query
      -- The arrays are in subqueries, so that no plan is better for knowing them and Postgres keeps the one that it has made. The limit
      -- has it look up each question by itself, by the keys: it never reads a table for all of them.
      select question.place, answer.*
      from unnest((select pat_hashes), (select grant_ids), (select grant_tenants), (select tenants), (select modules), (select kids))
        with ordinality question (pat_hash, grant_id, grant_tenant, tenant_id, module, kid, place)
      cross join lateral (
        select c.id, c.kind,
          case
            when c.state <> 'active' then c.state
            when u.disabled_at is not null then 'user_disabled'
            -- A null kid is a personal access token's, or comes from a program that does not say it. A kid of no stored key counts as
            -- removed. The keys do not depend on the question, so Postgres reads them once for all questions.
            when question.kid is not null
              and question.kid <> all (array(select k.kid from signing_keys k where k.state <> 'removed')) then 'key_removed'
            else 'active'
          end,
          c.user_id, c.client_id, c.tenant_id, c.permissions, c.resource, c.ends_at,
          m.user_id is not null, coalesce(m.permissions, '{}'),
          coalesce(f.enabled, false), coalesce(d.enabled, false), coalesce(d.provisioned, false), c.replaces
        from (
          select p.id, 'personal_access_token'::text kind,
            case
              when p.revoked_at is not null then 'revoked'
              when exists (select from endings e where e.tenant_id = p.tenant_id and e.user_id = p.user_id and e.client_id is null
                and e.days is null and p.created_at <= e.until and p.id <> all (e.keep)) then 'revoked'
              when p.expires_at <= at then 'expired'
              else 'active'
            end state,
            p.user_id, null::uuid client_id, p.tenant_id, p.permissions, null::text resource, p.expires_at ends_at,
            p.replaces_id is not null and p.former_ended_at is null replaces
          from personal_access_tokens p
          where p.hash = question.pat_hash
          union all
          select g.id, g.kind,
            case when g.state = 'active' and g.ends_at <= at then 'expired' else g.state end,
            g.user_id, g.client_id, g.tenant_id, g.permissions, g.resource, g.ends_at, false
          from grants g
          where g.tenant_id = question.grant_tenant and g.id = question.grant_id and question.pat_hash is null
        ) c
        join users u on u.id = c.user_id
        left join memberships m on m.tenant_id = coalesce(question.tenant_id, c.tenant_id) and m.user_id = c.user_id
        left join tenant_features f on f.tenant_id = coalesce(question.tenant_id, c.tenant_id) and f.feature = 'llm_integration'
        left join tenant_modules d on d.tenant_id = coalesce(question.tenant_id, c.tenant_id) and d.module = question.module
        limit 1
      ) answer;
    return;
  end if;
  for i in 1 .. coalesce(cardinality(pat_hashes), 0) loop
    pat := pat_hashes[i];
    tenant := tenants[i];
    wanted := modules[i];
    if pat is not null then
      return query
        select i::bigint, p.id, 'personal_access_token'::text,
          case
            when p.revoked_at is not null then 'revoked'
            when exists (select from endings e where e.tenant_id = p.tenant_id and e.user_id = p.user_id and e.client_id is null
              and e.days is null and p.created_at <= e.until and p.id <> all (e.keep)) then 'revoked'
            when p.expires_at <= at then 'expired'
            when u.disabled_at is not null then 'user_disabled'
            else 'active'
          end,
          p.user_id, null::uuid, p.tenant_id, p.permissions, null::text, p.expires_at,
          m.user_id is not null, coalesce(m.permissions, '{}'),
          coalesce(f.enabled, false), coalesce(d.enabled, false), coalesce(d.provisioned, false),
          p.replaces_id is not null and p.former_ended_at is null
        from personal_access_tokens p
        join users u on u.id = p.user_id
        left join memberships m on m.tenant_id = coalesce(tenant, p.tenant_id) and m.user_id = p.user_id
        left join tenant_features f on f.tenant_id = coalesce(tenant, p.tenant_id) and f.feature = 'llm_integration'
        left join tenant_modules d on d.tenant_id = coalesce(tenant, p.tenant_id) and d.module = wanted
        where p.hash = pat;
    else
      asked := grant_ids[i];
      owner := grant_tenants[i];
      signer := kids[i];
      return query
        select i::bigint, g.id, g.kind,
          case
            when g.state <> 'active' then g.state
            when g.ends_at <= at then 'expired'
            when u.disabled_at is not null then 'user_disabled'
            when signer is not null
              and signer <> all (array(select k.kid from signing_keys k where k.state <> 'removed')) then 'key_removed'
            else 'active'
          end,
          g.user_id, g.client_id, g.tenant_id, g.permissions, g.resource, g.ends_at,
          m.user_id is not null, coalesce(m.permissions, '{}'),
          coalesce(f.enabled, false), coalesce(d.enabled, false), coalesce(d.provisioned, false), false
        from grants g
        join users u on u.id = g.user_id
        left join memberships m on m.tenant_id = coalesce(tenant, owner) and m.user_id = g.user_id
        left join tenant_features f on f.tenant_id = coalesce(tenant, owner) and f.feature = 'llm_integration'
        left join tenant_modules d on d.tenant_id = coalesce(tenant, owner) and d.module = wanted
        where g.tenant_id = owner and g.id = asked;
    end if;
  end loop;
end
$$;
-- +goose StatementEnd

-- +goose Down
select 1 / 0; -- forward only
