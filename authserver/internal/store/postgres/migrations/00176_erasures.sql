-- resourceapi records in the audit log what it erased: which record, by whom, and how many submissions went with it. It may record nothing
-- else.

-- +goose Up
-- +goose StatementBegin
create function account.record_erasure(
  event uuid, tenant uuid, by_user uuid, what text, which uuid, submissions integer, request text
) returns void
language plpgsql volatile security definer
set search_path = account, pg_temp
as $$
begin
  if what not in ('programme', 'form', 'submission', 'supporter') then
    raise exception 'no kind of record that can be erased';
  end if;
  insert into audit_events (id, tenant_id, user_id, actor, action, subject, detail, request_id)
  values (event, tenant, by_user, 'user:' || by_user, what || '.erased', what || ':' || which,
    case when what in ('form', 'supporter') then jsonb_build_object('submissions', submissions) else '{}' end, request);
end
$$;
-- +goose StatementEnd

revoke all on function account.record_erasure from public;
grant execute on function account.record_erasure to almoner_resourceapi;

-- +goose Down
select 1 / 0; -- forward only
