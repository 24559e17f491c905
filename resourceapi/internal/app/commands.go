package app

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/config/envconf"
	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/database/migrate"
	"github.com/almonerhq/almoner/shared/database/pg"
	"github.com/almonerhq/almoner/shared/database/retention"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/rest"

	"github.com/almonerhq/almoner/resourceapi/internal/endpoint/forms"
	"github.com/almonerhq/almoner/resourceapi/internal/engage"
	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres"
)

// maxApplyFile is the maximum size of the file, in bytes.
const maxApplyFile = 1 << 20

// An ApplyCommand is `resourceapi apply`. It creates the forms of a file that do not exist and changes those that
// differ from it, in one transaction. Forms that the file does not name stay as they are.
type ApplyCommand struct {
	DryRun bool // change nothing
	JSON   bool
}

// An appliedForm is what the command did with one form, or would do.
type appliedForm struct {
	ID       uuid.UUID `json:"id"`
	Title    string    `json:"title"`
	Action   string    `json:"action"` // create, change or none
	Changed  []string  `json:"changed,omitempty"`
	EmbedKey string    `json:"embedKey,omitempty"` // of a form that was created; public
}

// appliedForms is the result of the command.
type appliedForms struct {
	DryRun bool          `json:"dryRun"`
	Forms  []appliedForm `json:"forms"`
}

// Run applies the file and writes the result to out.
func (a ApplyCommand) Run(ctx context.Context, environ []string, file io.Reader, out io.Writer) error {
	var config struct {
		DatabaseURL credential.Secret `env:"ALMONER_DATABASE_URL,required,notEmpty"`
	}
	if _, err := envconf.Load(&config, environ); err != nil {
		return err
	}
	wanted, err := readForms(file)
	if err != nil {
		return err
	}
	store, err := openForCommand(ctx, config.DatabaseURL)
	if err != nil {
		return err
	}
	defer store.Close()
	applied, err := a.apply(ctx, store.Engage(), wanted)
	if err != nil {
		return err
	}
	return write(out, applied, a.JSON)
}

// readForms reads the list named forms of a file. The list named clients is for authserver admin apply.
func readForms(file io.Reader) ([]engage.Form, error) {
	text, err := io.ReadAll(io.LimitReader(file, maxApplyFile+1))
	if err != nil {
		return nil, fmt.Errorf("read the file: %w", err)
	}
	if len(text) > maxApplyFile {
		return nil, errors.New("the file is larger than 1 MiB")
	}
	var content struct {
		Clients any              `yaml:"clients"`
		Forms   []map[string]any `yaml:"forms"`
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict())
	if err := decoder.Decode(&content); err != nil && !errors.Is(err, io.EOF) {
		first, _, _ := strings.Cut(yaml.FormatError(err, false, false), "\n")
		return nil, errors.New("the file is not valid: " + first)
	}
	if err := decoder.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, errors.New("the file must be one YAML document")
	}
	if len(content.Forms) == 0 && content.Clients == nil {
		return nil, errors.New("the file has no forms: it must contain a list named forms")
	}
	var all []engage.Form
	for i, entry := range content.Forms {
		form, err := readEntry(entry)
		if err == nil && slices.ContainsFunc(all, func(f engage.Form) bool { return f.ID == form.ID }) {
			err = errors.New("its id is also the id of an earlier entry")
		}
		if err != nil {
			return nil, fmt.Errorf("forms[%d]: %w", i, err)
		}
		all = append(all, form)
	}
	return all, nil
}

// readEntry reads an entry: the members of the API, an id and the id of its workspace.
func readEntry(entry map[string]any) (engage.Form, error) {
	ids := map[string]uuid.UUID{}
	for _, name := range []string{"id", "workspace"} {
		text, _ := entry[name].(string)
		id, err := web.ParseID(text)
		if err != nil {
			return engage.Form{}, fmt.Errorf("%s must be a UUID", name)
		}
		ids[name] = id
		delete(entry, name)
	}
	content, err := json.Marshal(entry)
	if err != nil {
		return engage.Form{}, errors.New("it must be an object with the members of a form")
	}
	form, err := forms.ReadForm(content)
	if problems, ok := errors.AsType[rest.Problems](err); ok {
		return engage.Form{}, errors.New(strings.Join(problems.Lines(), " "))
	}
	if err != nil {
		return engage.Form{}, errors.New(apierr.Of(err).Message)
	}
	form.ID, form.WorkspaceID = ids["id"], ids["workspace"]
	return form, nil
}

// errDryRun rolls back the transaction of a dry run.
var errDryRun = errors.New("dry run")

func (a ApplyCommand) apply(ctx context.Context, store *postgres.Engage, wanted []engage.Form) (appliedForms, error) {
	applied := appliedForms{DryRun: a.DryRun, Forms: []appliedForm{}}
	for i, form := range wanted {
		exists, err := store.WorkspaceExists(ctx, form.WorkspaceID)
		if err != nil {
			return appliedForms{}, err
		}
		if !exists {
			return appliedForms{}, fmt.Errorf("forms[%d] (%q): there is no workspace %s; nothing was changed",
				i, form.Title, form.WorkspaceID)
		}
	}
	effect := func(ctx context.Context, writer engage.Writer) (rest.Answer, error) {
		for i, form := range wanted {
			one, err := applyForm(ctx, writer, form)
			if err != nil {
				return rest.Answer{}, fmt.Errorf("forms[%d] (%q): %w", i, form.Title, err)
			}
			if a.DryRun {
				one.EmbedKey = ""
			}
			applied.Forms = append(applied.Forms, one)
		}
		if a.DryRun {
			return rest.Answer{}, errDryRun
		}
		return rest.Answer{}, nil
	}
	_, err := store.Once(ctx, rest.Key{}, effect)
	if errors.Is(err, errDryRun) {
		err = nil
	}
	return applied, err
}

// applyForm creates the form, or changes the stored one to it.
func applyForm(ctx context.Context, writer engage.Writer, form engage.Form) (appliedForm, error) {
	one := appliedForm{ID: form.ID, Title: form.Title, Action: "none"}
	_, err := writer.ReplaceForm(ctx, form.WorkspaceID, form.ID, func(stored engage.Form) (engage.Form, error) {
		if !sameFields(stored.Fields, form.Fields) {
			return engage.Form{}, errors.New("the fields of a form cannot change: choose a new id for another form")
		}
		if one.Changed = stored.Differences(form); len(one.Changed) > 0 {
			one.Action = "change"
		}
		return form, nil
	})
	if !errors.Is(err, engage.ErrNotFound) {
		return one, err
	}
	key, err := credential.EmbedKey.New(rand.Reader)
	if err != nil {
		return appliedForm{}, err
	}
	form.EmbedKey = key.Reveal()
	one.Action, one.EmbedKey = "create", form.EmbedKey
	_, err = writer.CreateForm(ctx, form, uuid.Nil) // no user creates it
	return one, err
}

// sameFields reports whether the fields are equal as they are stored, in JSON.
func sameFields(a, b []engage.Field) bool {
	first, failed := json.Marshal(a)
	second, alsoFailed := json.Marshal(b)
	return failed == nil && alsoFailed == nil && bytes.Equal(first, second)
}

// Text writes a line for each form that was created or changed, and a line with the counts.
func (a appliedForms) Text(out io.Writer) error {
	var text strings.Builder
	count := map[string]int{}
	for _, one := range a.Forms {
		count[one.Action]++
		switch one.Action {
		case "create":
			fmt.Fprintf(&text, "create  %s  %s\n", one.ID, one.Title)
			if one.EmbedKey != "" {
				fmt.Fprintf(&text, "        embed key: %s\n", one.EmbedKey)
			}
		case "change":
			fmt.Fprintf(&text, "change  %s  %s: %s\n", one.ID, one.Title, strings.Join(one.Changed, ", "))
		}
	}
	fmt.Fprintf(&text, "%d created, %d changed, %d unchanged\n", count["create"], count["change"], count["none"])
	if a.DryRun {
		text.WriteString("Dry run: nothing was changed.\n")
	}
	if _, err := io.WriteString(out, text.String()); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

// Migrate applies the missing migrations, as the options say.
func Migrate(ctx context.Context, environ []string, options migrate.Options, out io.Writer) error {
	var config struct {
		DatabaseURL credential.Secret `env:"ALMONER_DATABASE_URL,required,notEmpty"`
	}
	if _, err := envconf.Load(&config, environ); err != nil {
		return err
	}
	url := config.DatabaseURL.Reveal()
	return migrate.Command{
		Schema: "resource",
		State:  func() (migrate.State, error) { return postgres.Look(ctx, url) },
		Up: func() (applied []string, err error) {
			if applied, err = postgres.Migrate(ctx, url); err == nil {
				err = indexSearches(ctx, url, out)
			}
			return applied, err
		},
		Distribute:  func() error { return postgres.Distribute(ctx, url, out) },
		Distributed: func() (bool, error) { return migrate.IsDistributed(ctx, url) },
	}.Run(options, out)
}

// indexSearches creates the search index if the database supports it.
func indexSearches(ctx context.Context, url string, out io.Writer) error {
	created, err := postgres.IndexSearches(ctx, url)
	switch {
	case errors.Is(err, postgres.ErrNoTrigrams):
		_, err = fmt.Fprintln(out, "the index of searches was not created: "+err.Error()+
			"; run create extension pg_trgm as a superuser, then run migrate again")
	case created:
		_, err = fmt.Fprintln(out, "created the index of searches")
	}
	return err
}

// Retention deletes the due records, or only counts them unless deletes is true, and writes the result to out.
func Retention(ctx context.Context, environ []string, deletes, asJSON bool, out io.Writer) error {
	var config struct {
		DatabaseURL credential.Secret `env:"ALMONER_DATABASE_URL,required,notEmpty"`
		RetentionSettings
	}
	if _, err := envconf.Load(&config, environ); err != nil {
		return err
	}
	store, err := openForCommand(ctx, config.DatabaseURL)
	if err != nil {
		return err
	}
	defer store.Close()
	records := store.Retention(retention.Days(config.ImportsDays), retention.Days(config.SupportersDays))
	if deletes {
		deleted, err := records.DeleteAll(ctx)
		return errors.Join(err, write(out, deleted, asJSON))
	}
	all, err := records.Show(ctx)
	if err != nil {
		return err
	}
	return write(out, all, asJSON)
}

// openForCommand opens the store of an operator's command, with the smallest number of connections.
func openForCommand(ctx context.Context, url credential.Secret) (*postgres.Store, error) {
	return postgres.Open(ctx, credential.Fixed(url), postgres.Limits{Connections: 2, Wait: pg.CommandWait})
}

// write writes the result of a command.
func write(out io.Writer, result interface{ Text(io.Writer) error }, asJSON bool) error {
	if !asJSON {
		return result.Text(out)
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(result)
}
