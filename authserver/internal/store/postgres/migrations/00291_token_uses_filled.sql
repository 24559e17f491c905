-- +goose NO TRANSACTION
-- The uses of tokens before migration 290, a few thousand at a time in the order of the tokens' ids. Later ones are kept.

-- +goose Up
-- +goose StatementBegin
create or replace procedure account.fill_token_uses() language plpgsql as $$
declare
  most constant integer := 5000;
  done uuid := '00000000-0000-0000-0000-000000000000';
  until uuid;
begin
  loop
    select b.id into until from (
      select p.id from account.personal_access_tokens p where p.id > done order by p.id limit most) b
      order by b.id desc limit 1;
    exit when until is null;
    insert into account.token_uses (tenant_id, token_id, used_at)
      select p.tenant_id, p.id, p.last_used_at from account.personal_access_tokens p
      where p.id > done and p.id <= until and p.last_used_at is not null
      on conflict do nothing;
    commit;
    done := until;
  end loop;
end
$$;
-- +goose StatementEnd
call account.fill_token_uses();
drop procedure account.fill_token_uses();

-- +goose Down
select 1 / 0; -- forward only
