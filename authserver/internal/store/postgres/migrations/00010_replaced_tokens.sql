-- A token that takes another's place ends it at its own first use: whoever replaces a token need not remember to revoke
-- the old one, and nothing breaks before the new one is in place.

-- +goose Up
-- +goose StatementBegin
create or replace function account.note_use(pats uuid[], grant_ids uuid[])
returns void
language sql volatile security definer
set search_path = account, pg_temp
as $$
  update personal_access_tokens set last_used_at = now()
    where id = any (pats) and (last_used_at is null or last_used_at < now() - interval '1 hour');
  with ended as (
    update personal_access_tokens old set revoked_at = now(), revoke_reason = 'replaced'
    from personal_access_tokens new
    where new.id = any (pats) and old.id = new.replaces_id and old.user_id = new.user_id and old.revoked_at is null
    returning old.id, old.tenant_id, old.user_id, new.id as successor
  )
  insert into audit_events (id, tenant_id, user_id, actor, action, subject, detail)
    select gen_random_uuid(), tenant_id, user_id, 'system', 'token.revoked', 'token:' || id,
      jsonb_build_object('reason', 'replaced', 'successor', successor)
    from ended;
  update grants set last_used_at = now()
    where id = any (grant_ids) and (last_used_at is null or last_used_at < now() - interval '1 hour');
$$;
-- +goose StatementEnd

-- +goose Down
select 1 / 0; -- forward only
