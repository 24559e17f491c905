-- +goose NO TRANSACTION
-- The workspaces with events that have no sequence yet.

-- +goose Up
drop index concurrently if exists account.event_sequences_behind;
create index concurrently event_sequences_behind on account.event_sequences (tenant_id) where behind;

-- +goose Down
select 1 / 0; -- forward only
