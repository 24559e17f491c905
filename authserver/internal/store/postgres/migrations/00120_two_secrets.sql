-- A client has at most two secrets (contract, section 5): the current one, and the one before it while that still works. Earlier releases
-- kept every secret that was replaced within the last 24 hours. Of each client the two newest stay: first the one without an end, which
-- is the current one, then the one that ends last.
-- +goose Up
delete from account.client_secrets s
using (
  select client_id, hash, row_number() over (
    partition by client_id order by expires_at desc nulls first, created_at desc, hash
  ) place
  from account.client_secrets
  where expires_at is null or expires_at > now()
) live
where live.place > 2 and live.client_id = s.client_id and live.hash = s.hash;

-- +goose Down
select 1 / 0; -- forward only
