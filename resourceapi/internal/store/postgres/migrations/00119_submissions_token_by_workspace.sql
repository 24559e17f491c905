-- +goose NO TRANSACTION
-- The unique token of a submission gets the workspace (00124).

-- +goose Up
drop index concurrently if exists resource.submissions_workspace_token;
create unique index concurrently submissions_workspace_token on resource.submissions (tenant_id, token_id);

-- +goose Down
select 1 / 0; -- forward only
