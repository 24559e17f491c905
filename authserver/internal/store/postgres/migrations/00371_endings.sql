-- A change that ends many grants and tokens (a deleted client, an ended membership, a lower connector policy, a reset) revokes some of
-- them in its own transaction and adds a row here for the rest. From then on each statement that decides about a grant or a token treats
-- those that the row concerns as ended. Each is then revoked in the background, a bounded number in each transaction, and at last the row is
-- deleted.
--
-- The previous release adds no rows. It does not look at them either, but the functions below do: the access tokens that it still gives
-- are refused.

-- +goose Up
create table account.endings (
  id uuid primary key,
  tenant_id uuid not null,
  until timestamptz not null default clock_timestamp(), -- concerned is what was created until then
  client_id uuid, -- null: of any client
  user_id uuid,   -- null: of any user; the user's personal access tokens end too, if client_id is null
  keep uuid[] not null default '{}', -- grants and tokens that stay
  -- The connector policy that ends or narrows connectors' grants; null if all ends.
  platforms text[],
  permissions text[],
  days integer,
  reason text not null,
  actor text not null,
  request_id text not null default '',
  after uuid not null default '00000000-0000-0000-0000-000000000000', -- the grants up to this id are done
  moved_at timestamptz not null default clock_timestamp(), -- when a transaction did a part
  check (num_nulls(platforms, permissions, days) in (0, 3))
);
create index endings_by_workspace on account.endings (tenant_id);
create index endings_by_turn on account.endings (moved_at);
grant select, insert, update, delete on account.endings to almoner_authserver;

-- +goose StatementBegin
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
            case
              when g.state = 'revoked' then 'revoked'
              when exists (select from endings e where e.tenant_id = g.tenant_id and g.created_at <= e.until
                and (e.client_id is null or e.client_id = g.client_id) and (e.user_id is null or e.user_id = g.user_id) and g.id <> all (e.keep)
                and (e.days is null or g.kind = 'connector' and (not g.permissions && e.permissions
                  or g.created_at + make_interval(hours => 24 * e.days) <= at or not exists (select from oauth_clients c
                    where c.id = g.client_id and coalesce(c.connector_platform, 'other') = any (e.platforms))))) then 'revoked'
              when g.state = 'active' and g.ends_at <= at then 'expired'
              else g.state
            end,
            g.user_id, g.client_id, g.tenant_id,
            case when exists (select from endings e where e.tenant_id = g.tenant_id and e.days is not null and g.created_at <= e.until)
              and g.kind = 'connector'
              then array(select u.p from unnest(g.permissions) with ordinality u (p, n) where not exists (select from endings e
                where e.tenant_id = g.tenant_id and e.days is not null and g.created_at <= e.until and u.p <> all (e.permissions)) order by u.n)
              else g.permissions end,
            g.resource,
            least(g.ends_at, (select min(g.created_at + make_interval(hours => 24 * e.days)) from endings e
              where e.tenant_id = g.tenant_id and e.days is not null and g.created_at <= e.until and g.kind = 'connector')), false
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
            when g.state = 'revoked' then 'revoked'
            when exists (select from endings e where e.tenant_id = g.tenant_id and g.created_at <= e.until
              and (e.client_id is null or e.client_id = g.client_id) and (e.user_id is null or e.user_id = g.user_id) and g.id <> all (e.keep)
              and (e.days is null or g.kind = 'connector' and (not g.permissions && e.permissions
                or g.created_at + make_interval(hours => 24 * e.days) <= at or not exists (select from oauth_clients c
                  where c.id = g.client_id and coalesce(c.connector_platform, 'other') = any (e.platforms))))) then 'revoked'
            when g.state <> 'active' then g.state
            when g.ends_at <= at then 'expired'
            when u.disabled_at is not null then 'user_disabled'
            when signer is not null
              and signer <> all (array(select k.kid from signing_keys k where k.state <> 'removed')) then 'key_removed'
            else 'active'
          end,
          g.user_id, g.client_id, g.tenant_id,
          case when exists (select from endings e where e.tenant_id = g.tenant_id and e.days is not null and g.created_at <= e.until)
            and g.kind = 'connector'
            then array(select u.p from unnest(g.permissions) with ordinality u (p, n) where not exists (select from endings e
              where e.tenant_id = g.tenant_id and e.days is not null and g.created_at <= e.until and u.p <> all (e.permissions)) order by u.n)
            else g.permissions end,
          g.resource,
          least(g.ends_at, (select min(g.created_at + make_interval(hours => 24 * e.days)) from endings e
            where e.tenant_id = g.tenant_id and e.days is not null and g.created_at <= e.until and g.kind = 'connector')),
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
    where p.id = made.token_id and p.tenant_id = tenant and p.revoked_at is null and p.expires_at > now()
      and not exists (select from endings e where e.tenant_id = tenant and e.user_id = p.user_id and e.client_id is null
        and e.days is null and p.created_at <= e.until and p.id <> all (e.keep));
  if made.grant_id is not null then
    select g.permissions into given from grants g
      where g.tenant_id = tenant and g.id = made.grant_id and g.state = 'active' and g.ends_at > now()
        -- While a policy is being applied to a connector's grant, the webhook waits: this function does not evaluate the policy.
        and not exists (select from endings e where e.tenant_id = tenant and g.created_at <= e.until
          and (e.client_id is null or e.client_id = g.client_id) and (e.user_id is null or e.user_id = g.user_id)
          and g.id <> all (e.keep) and (e.days is null or g.kind = 'connector'));
  end if;
  if given is null then
    return null;
  end if;
  return array(select p from unnest(held) p where p = any (given));
end
$$;
-- +goose StatementEnd

-- +goose Down
select 1 / 0; -- forward only
