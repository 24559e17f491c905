-- What a single step of a grant reads from other tables is in functions, so that the step itself is a statement about one row of one table:
-- Citus runs it on the row's node, and keeps its plan. There the functions read the node's own copies of these tables (migrate
-- --distribute names them).
--
-- They are immutable although they read tables, because Citus passes only such functions to the node. An argument is always a column
-- of the grant, so that no plan contains their result, and as immutable functions they read what the statement that calls them reads.

-- +goose Up
-- +goose StatementBegin
-- Whether a client without authentication may use a grant now. This is the condition directSQL of authserver/internal/store/postgres,
-- except for endings: only those that concern the grant exclude it.
create function account.usable_grant(
  workspace uuid, grant_id uuid, client uuid, person uuid, granted text[], created timestamptz, asking uuid, usable text
) returns boolean
language plpgsql immutable parallel safe
as $$
begin
  return exists (select from account.oauth_clients c
      join account.users u on u.id = person and u.disabled_at is null
      join account.memberships m on m.tenant_id = workspace and m.user_id = person
        and exists (select from unnest(granted) one
          where one = any (m.permissions) and one = any (string_to_array(usable, ' ')))
      join account.tenant_features f on f.tenant_id = workspace and f.feature = 'llm_integration' and f.enabled
      where c.id = client and c.id = asking and c.kind = 'connector'
        and c.token_endpoint_auth_method = 'none' and c.deleted_at is null)
    and not exists (select from account.endings e
      where e.tenant_id = workspace and created <= e.until and (e.client_id is null or e.client_id = client)
        and (e.user_id is null or e.user_id = person) and grant_id <> all (e.keep));
end
$$;

create function account.live_keys(grant_id uuid) returns text[]
language plpgsql immutable parallel safe
as $$
begin
  return array(select k.kid from account.signing_keys k where k.state <> 'removed');
end
$$;
-- +goose StatementEnd
revoke all on function account.usable_grant, account.live_keys from public;
grant execute on function account.usable_grant, account.live_keys to almoner_authserver;

-- +goose Down
select 1 / 0; -- forward only
