-- The credential that sent an import, whose usage counts its records when it is processed. The previous release stores none.

-- +goose Up
alter table resource.imports add column credential_id uuid, add column credential_kind text;

-- +goose Down
select 1 / 0; -- forward only
