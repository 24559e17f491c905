-- The primary key of an event is its workspace and its id. Nothing refers to the former key, and no insert names it. In a
-- distributed database, authserver migrate --distribute has made such a key.

-- +goose Up
-- +goose StatementBegin
do $$
begin
  if exists (select from pg_index i join pg_attribute a on a.attrelid = i.indrelid and a.attnum = any (i.indkey)
    where i.indrelid = 'account.events'::regclass and i.indisprimary and a.attname = 'tenant_id') then
    drop index account.events_by_workspace;
  else
    alter table account.events drop constraint events_pkey,
      add constraint events_pkey primary key using index events_by_workspace;
  end if;
end
$$;
-- +goose StatementEnd

-- +goose Down
select 1 / 0; -- forward only
