-- The tries that took a grant to its current generation: a repeated request joins the one that it repeats, and the step is reverted only when
-- each of them was given up (grants.md, G10 and G11). Null for a step of an earlier release.

-- +goose Up
alter table account.grants add column taken_by text[];

-- +goose Down
select 1 / 0; -- forward only
