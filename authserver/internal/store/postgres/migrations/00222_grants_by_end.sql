-- +goose NO TRANSACTION
-- Grants that ended long enough ago to be deleted. A refresh does not change ends_at, so its update stays within the page (HOT).

-- +goose Up
drop index concurrently if exists account.grants_by_end;
create index concurrently grants_by_end on account.grants (ends_at);

-- +goose Down
select 1 / 0; -- forward only
