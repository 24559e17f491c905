-- +goose NO TRANSACTION
-- Each kind of record that retention deletes is found by its time. Without these indexes each statement of retention, and there is one for
-- 500 records, reads the whole table. clients_deleted also serves the list of connectors, which shows those deleted lately.

-- +goose Up
drop index concurrently if exists account.sign_ins_by_end;
create index concurrently sign_ins_by_end on account.sign_ins (expires_at);
drop index concurrently if exists account.password_resets_by_end;
create index concurrently password_resets_by_end on account.password_resets (expires_at);
drop index concurrently if exists account.access_requests_by_time;
create index concurrently access_requests_by_time on account.access_requests (asked_at);
drop index concurrently if exists account.email_changes_by_end;
create index concurrently email_changes_by_end on account.email_changes (expires_at);
drop index concurrently if exists account.invitations_by_end;
create index concurrently invitations_by_end on account.invitations ((coalesce(ended_at, expires_at)));
drop index concurrently if exists account.oauth_clients_deleted;
create index concurrently oauth_clients_deleted on account.oauth_clients (deleted_at) where deleted_at is not null;

-- +goose Down
select 1 / 0; -- forward only
