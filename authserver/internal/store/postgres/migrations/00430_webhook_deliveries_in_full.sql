-- A delivery in full: what was signed and when, and the beginning of the response (contract, section 6a). The body of the request is made
-- again from the event. personal is whether it had personal data too, which is stored nowhere: then the response, which may repeat it, is
-- not stored either.

-- +goose Up
alter table account.webhook_deliveries
  add column sent_at timestamptz, -- the header webhook-timestamp; null if nothing was sent, or by an earlier release
  add column signature text, -- the header webhook-signature
  add column personal boolean not null default false,
  add column response bytea; -- at most 1 KB of the body

-- +goose Down
select 1 / 0; -- forward only
