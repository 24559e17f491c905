-- Events of programmes, forms and submissions, in the transaction of each change (contract, section 6a). They are stored by account.add_event.
-- While the schema of authserver is older than this function, no events are written.

-- +goose Up
-- note_event gets the kind of record and the fields of the API by column.
-- +goose StatementBegin
create function resource.note_event() returns trigger language plpgsql as $$
declare
  changed text[];
begin
  if to_regprocedure('account.add_event(uuid, text, uuid, text[])') is null then
    return null;
  end if;
  if tg_op = 'INSERT' then
    perform account.add_event(new.tenant_id, tg_argv[0] || '.created', new.id, null);
  elsif tg_op = 'DELETE' then
    perform account.add_event(old.tenant_id, tg_argv[0] || '.deleted', old.id, null);
  else
    select array_agg(distinct field.value order by field.value) into changed
    from jsonb_each_text(tg_argv[1]::jsonb) field
    where to_jsonb(old) -> field.key is distinct from to_jsonb(new) -> field.key;
    if changed is not null then
      perform account.add_event(new.tenant_id, tg_argv[0] || '.updated', new.id, changed);
    end if;
  end if;
  return null;
end
$$;
-- +goose StatementEnd

create trigger note_event after insert or update or delete on resource.programmes
  for each row execute function resource.note_event('programme', '{"name": "name", "summary": "summary", "status": "status",
    "starts_on": "startsOn", "ends_on": "endsOn", "external_id": "externalId"}');
create trigger note_event after insert or update or delete on resource.forms
  for each row execute function resource.note_event('form', '{"title": "title", "fields": "fields",
    "allowed_origins": "allowedOrigins", "disabled_at": "enabled"}');
create trigger note_event after insert or update or delete on resource.submissions
  for each row execute function resource.note_event('submission', '{"status": "status", "reasons": "reasons",
    "supporter_id": "supporterId"}');

-- +goose Down
select 1 / 0; -- forward only
