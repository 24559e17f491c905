-- The first use of a personal access token ends every token that it replaces, directly or through others that were never used, before
-- it is answered: account.standings says that a token has that to do, and its reader calls account.end_replaced.

-- +goose Up
-- When a token's first use ended those that it replaces. Null: it was not used yet, or by a program older than this file, which is
-- made up for at the next use.
alter table account.personal_access_tokens add column former_ended_at timestamptz;

-- +goose StatementBegin
create function account.end_replaced(used uuid)
returns void
language plpgsql volatile security definer
set search_path = account, pg_temp
as $$
declare
  chain uuid[];
begin
  with recursive c as (
    select id, replaces_id, user_id from personal_access_tokens where id = used and former_ended_at is null
    union
    select old.id, old.replaces_id, old.user_id from c join personal_access_tokens old on old.id = c.replaces_id and old.user_id = c.user_id
  )
  select array_agg(id) into chain from c;
  -- In one order, so that two first uses cannot wait for one another.
  perform from personal_access_tokens where id = any (chain) order by id for no key update;
  with ended as (
    update personal_access_tokens set revoked_at = now(), revoke_reason = 'replaced'
    where id = any (chain) and id <> used and revoked_at is null
    returning id, tenant_id, user_id
  )
  insert into audit_events (id, tenant_id, user_id, actor, action, subject, detail)
    select gen_random_uuid(), tenant_id, user_id, 'system', 'token.revoked', 'token:' || id,
      jsonb_build_object('reason', 'replaced', 'successor', used)
    from ended;
  update personal_access_tokens set former_ended_at = now() where id = used and former_ended_at is null;
end
$$;

create or replace function account.note_use(pats uuid[], grant_ids uuid[])
returns void
language sql volatile security definer
set search_path = account, pg_temp
as $$
  update personal_access_tokens set last_used_at = now()
    where id = any (pats) and (last_used_at is null or last_used_at < now() - interval '1 hour');
  -- Programs older than this file do not call end_replaced themselves.
  select end_replaced(id) from personal_access_tokens where id = any (pats) and replaces_id is not null and former_ended_at is null;
  update grants set first_used_at = coalesce(first_used_at, now()),
      last_used_at = case when last_used_at < now() - interval '1 hour' then now() else coalesce(last_used_at, now()) end
    where id = any (grant_ids) and (first_used_at is null or last_used_at is null or last_used_at < now() - interval '1 hour');
$$;
-- +goose StatementEnd

revoke all on function account.end_replaced from public;
grant execute on function account.end_replaced to almoner_authserver, almoner_resourceapi;

-- +goose Down
select 1 / 0; -- forward only
