-- A rehearsal (contract, section 5b) asks which webhook endpoints would get no more events, by the function that decides that for each
-- delivery.

-- +goose Up
grant execute on function account.webhook_standing(uuid, uuid) to almoner_authserver;

-- +goose Down
select 1 / 0; -- forward only
