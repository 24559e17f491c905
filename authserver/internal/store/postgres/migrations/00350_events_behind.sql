-- Events get their sequences in steps (migration 352). behind is true if the last step may have left events without one:
-- resourceapi's worker then does the next steps.

-- +goose Up
alter table account.event_sequences add column behind boolean not null default false;

-- +goose Down
select 1 / 0; -- forward only
