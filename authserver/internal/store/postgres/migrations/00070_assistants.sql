-- What resourceapi asks besides account.standing, and seldom: who is connected, for the whoami tool of the MCP endpoint,
-- and what a client may ask for, when a token lacks a permission. They are functions of their own because the columns of
-- account.standing are read by position, in binaries older than this file too.

-- +goose Up
-- +goose StatementBegin
create function account.names(pat_hash bytea, asked_grant uuid) -- of the credential that account.standing was asked about
returns table (
  user_name text,
  tenant_name text,
  credential_name text,          -- the client's, or what the personal access token was called
  created_at timestamptz         -- of the grant or the personal access token
)
language plpgsql stable parallel safe security definer
set search_path = account, pg_temp
as $$
begin
  if pat_hash is not null then
    return query
      select u.name, t.name, p.name, p.created_at
      from personal_access_tokens p join users u on u.id = p.user_id join tenants t on t.id = p.tenant_id
      where p.hash = pat_hash;
  else
    return query
      select u.name, t.name, c.name, g.created_at
      from grants g join users u on u.id = g.user_id join tenants t on t.id = g.tenant_id join oauth_clients c on c.id = g.client_id
      where g.id = asked_grant;
  end if;
end
$$;

-- What the client of a grant could be given in the grant's workspace, if it asked again.
create function account.askable(asked_grant uuid)
returns text[] -- null: no such grant, or its client is deleted
language sql stable parallel safe security definer
set search_path = account, pg_temp
as $$
  select c.required_permissions from grants g join oauth_clients c on c.id = g.client_id
  where g.id = asked_grant and c.deleted_at is null;
$$;
-- +goose StatementEnd

revoke all on function account.names, account.askable from public;
grant execute on function account.names, account.askable to almoner_resourceapi;

-- +goose Down
select 1 / 0; -- forward only
