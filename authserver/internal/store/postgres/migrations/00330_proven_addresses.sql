-- Whether and when it was proven that a user's address is the user's, and by what (useraccount.Proof; null: not proven). mailed says that
-- the link of an invitation was mailed and not shown to its inviter.
--
-- The previous release writes neither column. Its users are unproven, and the links of its invitations prove nothing.

-- +goose Up
alter table account.users add column email_proven_at timestamptz, add column email_proven_by text;
alter table account.invitations add column mailed boolean not null default false;

-- +goose Down
select 1 / 0; -- forward only
