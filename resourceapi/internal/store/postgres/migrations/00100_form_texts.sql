-- A form's introduction, its text after sending, and the language of the built-in texts. Their defaults are what the
-- previous release shows, which goes on writing forms without them.

-- +goose Up
alter table resource.forms
  add column introduction text not null default '',
  add column thank_you text not null default '',
  add column lang text not null default 'en' check (lang <> '');

-- Events name the new fields too. The trigger keeps the fields that it has.
-- +goose StatementBegin
do $$
declare
  fields jsonb;
begin
  select split_part(encode(tgargs, 'escape'), '\000', 2)::jsonb into strict fields
  from pg_trigger where tgrelid = 'resource.forms'::regclass and tgname = 'note_event';
  execute format(
    'create or replace trigger note_event after insert or update or delete on resource.forms
      for each row execute function resource.note_event(%L, %L)',
    'form',
    (fields || '{"introduction": "introduction", "thank_you": "thankYou", "lang": "lang"}')::text
  );
end
$$;
-- +goose StatementEnd

-- +goose Down
select 1 / 0; -- forward only
