-- Approvals of consents are numbered before Redis is asked to accept their codes. The number of an approval that Redis refuses is used
-- up, and nothing else of it is stored (G12).

-- +goose Up
create sequence account.approval_numbers as integer;
grant usage on sequence account.approval_numbers to almoner_authserver;

-- +goose Down
select 1 / 0; -- forward only
