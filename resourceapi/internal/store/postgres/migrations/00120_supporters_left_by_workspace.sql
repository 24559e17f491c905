-- Notes of supporters without submissions name the workspace. There are few: retention deletes them.

-- +goose Up
alter table resource.supporters_left add column tenant_id uuid;
update resource.supporters_left l set tenant_id = s.tenant_id from resource.supporters s where s.id = l.supporter_id;
alter table resource.supporters_left
  alter column tenant_id set not null,
  drop constraint supporters_left_supporter_id_fkey,
  drop constraint supporters_left_pkey,
  add primary key (tenant_id, supporter_id),
  add constraint supporters_left_supporter foreign key (tenant_id, supporter_id)
    references resource.supporters (tenant_id, id) on delete cascade;

-- +goose StatementBegin
create or replace function resource.note_supporter_left() returns trigger language plpgsql as $$
begin
  insert into resource.supporters_left (tenant_id, supporter_id) values (old.tenant_id, old.supporter_id)
    on conflict (tenant_id, supporter_id) do update
      set since = excluded.since where supporters_left.since < excluded.since;
  return null;
end
$$;
-- +goose StatementEnd

-- +goose Down
select 1 / 0; -- forward only
