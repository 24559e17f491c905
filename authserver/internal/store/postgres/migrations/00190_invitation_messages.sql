-- The invitations that were sent within the last 24 hours, for the limits per inviter, workspace and address
-- (membership/limits.go). Older rows are deleted. The address is a hash: the table outlives the invitation.

-- +goose Up
create table account.invitation_messages (
  tenant_id uuid not null,
  inviter_id uuid not null,
  email_hash bytea not null check (length(email_hash) = 32),
  sent_at timestamptz not null default now()
);
create index invitation_messages_by_inviter on account.invitation_messages (inviter_id, sent_at);
create index invitation_messages_by_tenant on account.invitation_messages (tenant_id, sent_at);
create index invitation_messages_by_address on account.invitation_messages (email_hash, sent_at);
create index invitation_messages_by_age on account.invitation_messages (sent_at);

grant select, insert, update, delete on account.invitation_messages to almoner_authserver;

-- +goose Down
select 1 / 0; -- forward only
