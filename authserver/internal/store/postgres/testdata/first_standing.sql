-- The first version of the rules of account.standing.
create function account.first_standing(pat_hash bytea, grant_id uuid, tenant uuid, module_name text)
returns table (
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
  if pat_hash is not null then
    return query
      select p.id, 'personal_access_token'::text,
        case when p.revoked_at is not null then 'revoked'
             when p.expires_at <= now() then 'expired'
             when u.disabled_at is not null then 'user_disabled'
             else 'active' end,
        p.user_id, null::uuid, p.tenant_id, p.permissions, null::text, p.expires_at,
        m.user_id is not null, coalesce(m.permissions, '{}'),
        coalesce(f.enabled, false), coalesce(d.enabled, false), coalesce(d.provisioned, false)
      from personal_access_tokens p
      join users u on u.id = p.user_id
      left join memberships m on m.tenant_id = coalesce(tenant, p.tenant_id) and m.user_id = p.user_id
      left join tenant_features f on f.tenant_id = coalesce(tenant, p.tenant_id) and f.feature = 'llm_integration'
      left join tenant_modules d on d.tenant_id = coalesce(tenant, p.tenant_id) and d.module = module_name
      where p.hash = pat_hash;
  else
    return query
      select g.id, g.kind,
        case when g.state <> 'active' then g.state
             when g.ends_at <= now() then 'expired'
             when u.disabled_at is not null then 'user_disabled'
             else 'active' end,
        g.user_id, g.client_id, g.tenant_id, g.permissions, g.resource, g.ends_at,
        m.user_id is not null, coalesce(m.permissions, '{}'),
        coalesce(f.enabled, false), coalesce(d.enabled, false), coalesce(d.provisioned, false)
      from grants g
      join users u on u.id = g.user_id
      left join memberships m on m.tenant_id = coalesce(tenant, g.tenant_id) and m.user_id = g.user_id
      left join tenant_features f on f.tenant_id = coalesce(tenant, g.tenant_id) and f.feature = 'llm_integration'
      left join tenant_modules d on d.tenant_id = coalesce(tenant, g.tenant_id) and d.module = module_name
      where g.id = grant_id;
  end if;
end
$$;
