-- On Citus, account.standings asks account.distributed_standings, which reads a grant by itself, so that Citus sees a query of one row of
-- one table, and then the coordinator's own copies of the other tables (migrate --distribute names them). Citus plans a query that joins
-- them each time, which takes several times as long.

-- +goose Up
-- +goose StatementBegin
create function account.distributed_standings(
  pat_hashes bytea[], grant_ids uuid[], grant_tenants uuid[], tenants uuid[], modules text[], kids text[]
)
returns table (
  place bigint, credential_id uuid, kind text, state text, user_id uuid, client_id uuid, credential_tenant uuid, credential_permissions text[],
  resource text, ends_at timestamptz, member boolean, member_permissions text[], llm_integration boolean, module_enabled boolean,
  module_provisioned boolean, replaces boolean
)
language plpgsql stable parallel safe
as $$
#variable_conflict use_column
declare
  at timestamptz := now();
  pat bytea;
  asked uuid;
  owner uuid;
  tenant uuid;
  wanted text;
  signer text;
  found_grant record;
begin
  if exists (select from account.endings e where e.tenant_id = any (grant_tenants)) then
    return query select * from account.limited_standings(pat_hashes, grant_ids, grant_tenants, tenants, modules, kids);
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
            when exists (select from account.endings e where e.tenant_id = p.tenant_id and e.user_id = p.user_id and e.client_id is null
              and e.days is null and p.created_at <= e.until and p.id <> all (e.keep)) then 'revoked'
            when p.expires_at <= at then 'expired'
            when u.disabled_at is not null then 'user_disabled'
            else 'active'
          end,
          p.user_id, null::uuid, p.tenant_id, p.permissions, null::text, p.expires_at,
          m.user_id is not null, coalesce(m.permissions, '{}'),
          coalesce(f.enabled, false), coalesce(d.enabled, false), coalesce(d.provisioned, false),
          p.replaces_id is not null and p.former_ended_at is null
        from account.personal_access_tokens p
        join account.users u on u.id = p.user_id
        left join account.memberships m on m.tenant_id = coalesce(tenant, p.tenant_id) and m.user_id = p.user_id
        left join account.tenant_features f on f.tenant_id = coalesce(tenant, p.tenant_id) and f.feature = 'llm_integration'
        left join account.tenant_modules d on d.tenant_id = coalesce(tenant, p.tenant_id) and d.module = wanted
        where p.hash = pat;
    else
      asked := grant_ids[i];
      owner := grant_tenants[i];
      signer := kids[i];
      select g.id, g.kind, g.state, g.ends_at, g.user_id, g.client_id, g.tenant_id, g.permissions, g.resource into found_grant
      from account.grants g where g.tenant_id = owner and g.id = asked;
      return query
        select i::bigint, found_grant.id, found_grant.kind,
          case
            when found_grant.state <> 'active' then found_grant.state
            when found_grant.ends_at <= at then 'expired'
            when u.disabled_at is not null then 'user_disabled'
            when signer is not null
              and signer <> all (array(select k.kid from account.signing_keys k where k.state <> 'removed')) then 'key_removed'
            else 'active'
          end,
          found_grant.user_id, found_grant.client_id, found_grant.tenant_id, found_grant.permissions, found_grant.resource,
          found_grant.ends_at, m.user_id is not null, coalesce(m.permissions, '{}'),
          coalesce(f.enabled, false), coalesce(d.enabled, false), coalesce(d.provisioned, false), false
        from account.users u
        left join account.memberships m on m.tenant_id = coalesce(tenant, owner) and m.user_id = u.id
        left join account.tenant_features f on f.tenant_id = coalesce(tenant, owner) and f.feature = 'llm_integration'
        left join account.tenant_modules d on d.tenant_id = coalesce(tenant, owner) and d.module = wanted
        where u.id = found_grant.user_id;
    end if;
  end loop;
end
$$;
revoke all on function account.distributed_standings from public;

do $$
declare
  former text := pg_get_functiondef('account.standings(bytea[], uuid[], uuid[], uuid[], text[], text[])'::regprocedure);
  changed text := replace(former, E'begin\n  if exists (select from endings',
    E'begin\n  if to_regclass(''pg_dist_partition'') is not null then\n'
    '    return query select * from account.distributed_standings(pat_hashes, grant_ids, grant_tenants, tenants, modules, kids);\n'
    '    return;\n  end if;\n  if exists (select from endings');
begin
  if changed = former then
    raise exception 'account.standings is not as this migration expects it';
  end if;
  execute changed;
end
$$;
-- +goose StatementEnd

-- +goose Down
select 1 / 0; -- forward only
