-- The worker takes submissions with the status 'accepted'. One that could not be processed waits until retry_at.

-- +goose Up
alter table resource.submissions
  add column if not exists failures smallint not null default 0,
  add column if not exists retry_at timestamptz;

-- note_event converted both rows of an update to JSON for each field, with all answers of a submission. Each installation has
-- account.add_event now.
-- +goose StatementBegin
create or replace function resource.note_event() returns trigger language plpgsql as $$
declare
  changed text[];
  before jsonb;
  after jsonb;
begin
  if tg_argv[0] = 'form' and not resource.is_coordinator() then
    return null;
  end if;
  if tg_op = 'INSERT' then
    perform account.add_event(new.tenant_id, tg_argv[0] || '.created', new.id, null);
    return null;
  elsif tg_op = 'DELETE' then
    perform account.add_event(old.tenant_id, tg_argv[0] || '.deleted', old.id, null);
    return null;
  end if;
  if tg_argv[0] = 'submission' then
    changed := array_remove(array[
      case when old.reasons is distinct from new.reasons then 'reasons' end,
      case when old.status is distinct from new.status then 'status' end,
      case when old.supporter_id is distinct from new.supporter_id then 'supporterId' end], null);
  else
    before := to_jsonb(old);
    after := to_jsonb(new);
    changed := array(select distinct field.value from jsonb_each_text(tg_argv[1]::jsonb) field
      where before -> field.key is distinct from after -> field.key order by field.value);
  end if;
  if changed <> '{}' then
    perform account.add_event(new.tenant_id, tg_argv[0] || '.updated', new.id, changed);
  end if;
  return null;
end
$$;
-- +goose StatementEnd

-- A month begins as an empty table. The plan made then reads and sorts all rows, and Postgres must not keep it.
alter function resource.next_moment(uuid, text, integer) set enable_seqscan = off set enable_sort = off;

-- +goose Down
select 1 / 0; -- forward only
