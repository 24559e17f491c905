-- When a personal access token was last used, in a table of its own whose key has the workspace. In a distributed database every
-- node has a copy of the tokens, and an update of one waits for all nodes; the uses of a workspace are on one node.
--
-- The previous release calls note_use without the workspaces of tokens, and reads last_used_at of a token. That function writes
-- both, so neither release misses a use of the other's past; the next release drops it with the column.

-- +goose Up
create table account.token_uses (
  tenant_id uuid not null,
  token_id uuid not null references account.personal_access_tokens on delete cascade,
  used_at timestamptz not null,
  primary key (tenant_id, token_id)
);
create index token_uses_by_token on account.token_uses (token_id); -- for the deletion of a token
grant select on account.token_uses to almoner_authserver;

-- +goose StatementBegin
create function account.note_use(pats uuid[], pat_tenants uuid[], grant_ids uuid[], grant_tenants uuid[])
returns void -- pats and pat_tenants have one length, and so have grant_ids and grant_tenants
language plpgsql volatile security definer
set search_path = account, pg_temp
as $$
declare
  at timestamptz := now();
  long_ago timestamptz := now() - interval '1 hour';
  asked uuid;
  owner uuid;
begin
  for i in 1 .. coalesce(cardinality(pats), 0) loop -- in the order of the caller, who sorts them
    asked := pats[i];
    owner := pat_tenants[i];
    insert into token_uses as u (tenant_id, token_id, used_at) values (owner, asked, at)
      on conflict (tenant_id, token_id) do update set used_at = excluded.used_at where u.used_at < long_ago;
  end loop;
  for i in 1 .. coalesce(cardinality(grant_ids), 0) loop
    asked := grant_ids[i];
    owner := grant_tenants[i];
    update grants set first_used_at = coalesce(first_used_at, at),
        last_used_at = case when last_used_at >= long_ago then last_used_at else at end
      where tenant_id = owner and id = asked
        and (first_used_at is null or last_used_at is null or last_used_at < long_ago);
  end loop;
end
$$;

create or replace function account.note_use(pats uuid[], grant_ids uuid[], grant_tenants uuid[])
returns void
language plpgsql volatile security definer
set search_path = account, pg_temp
as $$
declare
  at timestamptz := now();
  long_ago timestamptz := now() - interval '1 hour';
  used uuid[];
  owners uuid[];
begin
  if cardinality(pats) > 0 then
    update personal_access_tokens set last_used_at = at
      where id = any (pats) and (last_used_at is null or last_used_at < long_ago);
    select array_agg(p.id order by p.id), array_agg(p.tenant_id order by p.id) into used, owners
      from personal_access_tokens p where p.id = any (pats);
  end if;
  perform note_use(used, owners, grant_ids, grant_tenants);
end
$$;
-- +goose StatementEnd

revoke all on function account.note_use(uuid[], uuid[], uuid[], uuid[]) from public;
grant execute on function account.note_use(uuid[], uuid[], uuid[], uuid[]) to almoner_authserver, almoner_resourceapi;

-- +goose Down
select 1 / 0; -- forward only
