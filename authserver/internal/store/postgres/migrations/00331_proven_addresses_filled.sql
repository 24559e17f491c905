-- +goose NO TRANSACTION
-- An address counts as proven if an operator added the user or a mailed link changed the address. A linked account at the identity
-- provider, or a mailed link that set the password, also proves it if nothing that gives access to the account is older, because an inviter
-- may have created older access. A linked account proves nothing if the account has a password, whose age is unknown. Others stay unproven:
-- an invitation does not say whether its link was mailed. A reset within the half hour after an operator's link may have used that link. A
-- few hundred users at a time.

-- +goose Up
-- +goose StatementBegin
create or replace function account.holds_earlier_access(wanted uuid, proof timestamptz) returns boolean
language plpgsql stable as $$ -- one table at a time: they are on different nodes of a distributed database
begin
  perform from account.passkeys where user_id = wanted and created_at < proof;
  if found then return true; end if;
  perform from account.authenticators where user_id = wanted and created_at < proof;
  if found then return true; end if;
  perform from account.personal_access_tokens
    where user_id = wanted and created_at < proof and revoked_at is null and expires_at > now();
  if found then return true; end if;
  perform from account.grants where user_id = wanted and created_at < proof and state <> 'revoked' and ends_at > now();
  if found then return true; end if;
  perform from account.webhooks where user_id = wanted and created_at < proof;
  if found then return true; end if;
  perform from account.sign_ins where user_id = wanted and created_at < proof and expires_at > proof
    and (ended_at is null or ended_at > proof);
  return found;
end
$$;

create or replace procedure account.fill_proven_addresses() language plpgsql as $$
declare
  one record;
  how text;
  linked uuid; -- the last user with an operator's link
  linked_at timestamptz;
  changes integer := 0;
begin
  for one in
    select i.user_id, min(i.created_at) as at from account.identities i group by i.user_id
  loop
    continue when account.holds_earlier_access(one.user_id, one.at);
    update account.users set email_proven_at = one.at, email_proven_by = 'upstream'
      where id = one.user_id and email_proven_at is null and deleted_at is null and password_hash is null;
    changes := changes + 1;
    if changes % 500 = 0 then
      commit;
    end if;
  end loop;
  for one in
    select e.user_id, e.action, e.actor, e.at from account.audit_events e
    where e.action in ('user.added', 'user.email_changed', 'user.reset_requested', 'user.password_reset')
      and e.user_id is not null order by e.user_id, e.at
  loop
    if one.action = 'user.reset_requested' and one.actor = 'admin' then
      linked := one.user_id;
      linked_at := one.at;
    end if;
    how := case
      when one.action = 'user.added' and one.actor = 'admin' then 'operator'
      when one.action = 'user.email_changed' and one.actor <> 'admin' then 'email_change'
      when one.action = 'user.password_reset'
        and (linked is distinct from one.user_id or one.at > linked_at + interval '30 minutes') then 'reset'
    end;
    continue when how is null or how = 'reset' and account.holds_earlier_access(one.user_id, one.at);
    update account.users set email_proven_at = one.at, email_proven_by = how
      where id = one.user_id and email_proven_at is null and deleted_at is null;
    changes := changes + 1;
    if changes % 500 = 0 then
      commit;
    end if;
  end loop;
end
$$;
-- +goose StatementEnd
call account.fill_proven_addresses();
drop procedure account.fill_proven_addresses();
drop function account.holds_earlier_access(uuid, timestamptz);

-- +goose Down
select 1 / 0; -- forward only
