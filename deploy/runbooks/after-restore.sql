-- Part of after-restore.md: ends every personal access token, with its event, and every sign-in.
begin;
with ended as (
  update account.personal_access_tokens set revoked_at = now(), revoke_reason = 'restored'
  where revoked_at is null and expires_at > now() returning id, tenant_id, user_id
)
insert into account.audit_events (id, tenant_id, user_id, actor, action, subject, detail)
  select gen_random_uuid(), tenant_id, user_id, 'admin', 'token.revoked', 'token:' || id, jsonb_build_object('reason', 'restored') from ended;
update account.sign_ins set ended_at = now() where ended_at is null;
delete from account.sessions;
delete from account.ceremonies;
commit;
