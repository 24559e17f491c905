-- When the current refresh token was issued. last_used_at is not exact: requests to the API change it too. Null for grants
-- that were last refreshed by an older release, and for pending grants.

-- +goose Up
alter table account.grants add column renewed_at timestamptz;

-- +goose Down
select 1 / 0; -- forward only
