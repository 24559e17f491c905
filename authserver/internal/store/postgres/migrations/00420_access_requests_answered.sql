-- A request for access is open until an administrator answers it. A later request of the same user is open again, whichever
-- release stored it: it is later than the answer.

-- +goose Up
alter table account.access_requests add column answered_at timestamptz;

-- +goose Down
select 1 / 0; -- forward only
