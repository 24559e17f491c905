-- What a credential may read about itself: the names of account.names, and the e-mail address of its user.

-- +goose Up
-- +goose StatementBegin
create function account.profile(pat_hash bytea, asked_grant uuid)
returns table (
  user_name text,
  email text,
  tenant_name text,
  credential_name text -- the client's, or the name of the personal access token
)
language plpgsql stable parallel safe security definer
set search_path = account, pg_temp
as $$
begin
  if pat_hash is not null then
    return query
      select u.name, u.email::text, t.name, p.name
      from personal_access_tokens p join users u on u.id = p.user_id join tenants t on t.id = p.tenant_id
      where p.hash = pat_hash;
  else
    return query
      select u.name, u.email::text, t.name, c.name
      from grants g join users u on u.id = g.user_id join tenants t on t.id = g.tenant_id join oauth_clients c on c.id = g.client_id
      where g.id = asked_grant;
  end if;
end
$$;
-- +goose StatementEnd

revoke all on function account.profile from public;
grant execute on function account.profile to almoner_resourceapi;

-- +goose Down
select 1 / 0; -- forward only
