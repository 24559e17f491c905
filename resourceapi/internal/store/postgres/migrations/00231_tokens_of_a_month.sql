-- The trigger also found a submission of the same month that the same statement had inserted, and so refused a batch in which a token came
-- twice: each of its submissions was stored alone. Within a month the index decides.

-- +goose Up
-- +goose StatementBegin
create or replace function resource.refuse_used_token() returns trigger language plpgsql set search_path = pg_catalog as $$
begin
  if exists (select 1 from resource.submissions s where s.tenant_id = new.tenant_id and s.token_id = new.token_id
      and s.created_at > new.created_at - interval '1 day'
      and s.created_at < date_trunc('month', new.created_at at time zone 'UTC') at time zone 'UTC') then
    raise unique_violation using message = 'the token was used in the previous month', table = 'submissions';
  end if;
  return new;
end
$$;
-- +goose StatementEnd
