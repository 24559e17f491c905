// Package admin implements the commands of authserver admin, which operators use.
//
// Each Command is a struct with its arguments and options. It refuses invalid ones, and changes the store as the
// services of users do, with an audit event of the actor admin in the same transaction. Revocations are committed in
// Postgres and then propagated to Redis; a failure to propagate does not matter (package grant).
//
//	workspaces.go   organisations, workspaces, their modules and features, and their connector policies
//	users.go        users: addresses, deletion
//	signin.go       passwords, passkeys and linked accounts of users
//	members.go      memberships and permissions
//	clients.go      clients and services
//	apply.go        clients from a YAML file
//	grants.go       grants and their revocation
//	maintenance.go  signing keys (package keyring), backups (package backup) and deletion of old records
//	service.go      the groups of commands, what the commands share, and their output
//
// Each file has the commands of its groups: their help, arguments and options, and what they do. Package app creates
// the Service, and cmd/authserver runs the commands.
package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/oauth/keyring"
	"github.com/almonerhq/almoner/authserver/internal/oauth/rehearsal"
	"github.com/almonerhq/almoner/shared/contract/displayname"
	"github.com/almonerhq/almoner/shared/database/retention"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/rest"
)

// Commands are the operator's commands by their groups, for package kong. They work on the database of
// ALMONER_DATABASE_URL. If ALMONER_REDIS_URL is set, revocations are propagated to Redis. keys rotate, remove and
// reseal need ALMONER_KEYS. backup uses none of these.
type Commands struct {
	Organisations   organisationCommands `cmd:"" help:"Manage organisations."`
	Workspaces      workspaceCommands    `cmd:"" aliases:"tenants" help:"Manage workspaces."`
	Modules         moduleCommands       `cmd:"" help:"Manage the modules of a workspace."`
	Features        featureCommands      `cmd:"" help:"Manage the features of a workspace."`
	Users           userCommands         `cmd:"" help:"Manage users."`
	Members         memberCommands       `cmd:"" help:"Manage the members of a workspace and their permissions."`
	Clients         clientCommands       `cmd:"" help:"Manage OAuth clients."`
	Apply           Apply                `cmd:"" help:"Create and change clients to match a YAML file."`
	ConnectorPolicy policyCommands       `cmd:"" help:"Manage what connectors may be granted in a workspace."`
	Keys            keyCommands          `cmd:"" help:"Manage the keys that sign access tokens."`
	Grants          grantCommands        `cmd:"" help:"Manage grants: what users consented to."`
	Backup          backupCommands       `cmd:"" help:"Make, check and restore backups of the database, with PostgreSQL's programs (deploy/runbooks)."`
	Retention       retentionCommands    `cmd:"" help:"Manage the deletion of records that are no longer needed."`
}

// A Refusal is an error of the caller, in one line that says what to do. Nothing was changed.
type Refusal struct{ Message string }

func (r *Refusal) Error() string { return r.Message }

func refuse(message string) error { return &Refusal{message} }

// Refusals of the store.
var (
	ErrNoOrganisation = refuse("there is no organisation with that id")
	ErrNoWorkspace    = refuse("there is no workspace with that id")
	ErrNoUser         = refuse("there is no user with that id or e-mail address")
	ErrNoMember       = refuse("that user is not a member of that workspace")
	ErrMember         = refuse("that user is already a member: change their permissions with members set-permissions")
	ErrUnproven       = refuse("the e-mail address of that user was never confirmed, so another person may have " +
		"created the account. To have the account's access ended and the address confirmed, run users reset-link " +
		"and give the link to the user: both happen when the user sets a password. If you are sure that the " +
		"account is the user's, run users confirm-email")
	ErrEmailTaken = refuse("another user has that e-mail address")
	ErrNoClient   = refuse("there is no client with that id, or it was deleted")
	ErrNoGrant    = refuse("there is no grant with that id")
)

// A Store is the database of the commands. Its errors are the refusals above, or wrap store.ErrUnavailable.
type Store interface {
	WorkspaceStore
	UserStore
	SignInStore
	MemberStore
	ClientStore
	GrantStore
	MaintenanceStore
}

// A Service runs the commands.
type Service struct {
	Store   Store
	Clients *client.Registry
	// Connections and Rehearsals change and rehearse connector policies.
	Connections *consent.Connections
	Rehearsals  *rehearsal.Rehearsals
	Keyring     *keyring.Keyring // nil if ALMONER_KEYS is not set
	Retention   *retention.Store
	AppURL      string   // of the pages, or "" if ALMONER_APP_URL is not set
	Resources   []string // the deployment's resource identifiers, or nil if ALMONER_BASE_URL is not set
	// PropagateRevocation propagates ended grants to Redis if it can.
	PropagateRevocation func(ctx context.Context, ended []grant.Grant)
}

// refusals are the words for errors of the services that operators share with users.
var refusals = map[error]error{
	membership.ErrNoMember:    ErrNoMember,
	membership.ErrMember:      ErrMember,
	membership.ErrUnproven:    ErrUnproven,
	useraccount.ErrEmailTaken: ErrEmailTaken,
	client.ErrUnknown:         ErrNoClient,
	rehearsal.ErrTooMany: refuse("the workspace has more than 12,000 connections and tokens, too many to find out " +
		"what the change would do"),
	rehearsal.ErrBusy:    refuse("the workspace is changing now: try again"),
	rehearsal.ErrTooSlow: refuse("it takes too long now to find out what the change would do: try again"),
}

// A Command is a command with its arguments and options, which package kong parses. The result is valid only if the
// error is nil.
type Command interface {
	run(ctx context.Context, s *Service) (Result, error)
}

// Checked is a Command with a check before the database is opened.
type Checked interface {
	Command
	// Check checks the options, and opens what the command reads or writes.
	Check() error
}

// Run runs a command.
func (s *Service) Run(ctx context.Context, c Command) (Result, error) {
	result, err := c.run(ctx, s)
	for of, words := range refusals {
		if errors.Is(err, of) {
			return nil, words
		}
	}
	return result, err
}

func event(action audit.Action, kind string, id uuid.UUID) audit.Event {
	return audit.ByOperator().Event(action, kind+":"+id.String(), nil, nil)
}

func userEvent(action audit.Action, id uuid.UUID) audit.Event {
	entry := event(action, "user", id)
	entry.UserID = &id
	return entry
}

func workspaceEvent(action audit.Action, id uuid.UUID, detail map[string]any) audit.Event {
	entry := event(action, "tenant", id)
	entry.WorkspaceID, entry.Detail = &id, detail
	return entry
}

// Revoked returns the grants that ended for the reason.
func Revoked(ended []useraccount.EndedGrant, reason grant.Reason) []grant.Grant {
	grants := make([]grant.Grant, len(ended))
	for i, g := range ended {
		grants[i] = grant.Grant{ID: g.ID, Ends: g.Ends, Reason: reason}
	}
	return grants
}

func parseID(what, text string) (uuid.UUID, error) {
	id, err := web.ParseID(text)
	if err != nil {
		return uuid.Nil, refuse("the " + what + " id must be a UUID such as 018f3c1e-6b7a-7c3e-9a55-0d2f6f1b2c3d")
	}
	return id, nil
}

// parseOptional is parseID for an optional argument. It returns nil for "".
func parseOptional(what, text string) (*uuid.UUID, error) {
	if text == "" {
		return nil, nil
	}
	id, err := parseID(what, text)
	return &id, err
}

func parseName(name string) (string, error) {
	name = strings.TrimSpace(name)
	if displayname.Check(name, displayname.MaxLength) != "" {
		return "", refuse("the name must have 1 to 100 printable characters")
	}
	return name, nil
}

func stamp(at *time.Time) string {
	if at == nil {
		return "-"
	}
	return at.UTC().Format(time.RFC3339)
}

// A Result is the output of a command. Its JSON is the value itself.
type Result interface {
	// Text writes the result as text.
	Text(out io.Writer) error
}

// Print writes a result to out.
func Print(out io.Writer, asJSON bool, result Result) error {
	if !asJSON {
		return result.Text(out)
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(result); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

// write writes the text of a result.
func write(out io.Writer, text string) error {
	if _, err := io.WriteString(out, text); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

// writeTable writes rows with aligned columns.
func writeTable(out io.Writer, rows [][]string) error {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, cells := range rows {
		_, _ = fmt.Fprintln(table, strings.Join(cells, "\t"))
	}
	_ = table.Flush() // a Builder has no errors
	return write(out, text.String())
}

// A cell is a value of an item, under its heading.
type cell struct {
	heading string
	value   any
}

func (c cell) text() string {
	switch value := c.value.(type) {
	case rest.Time:
		return stamp((*time.Time)(&value))
	case time.Time:
		return stamp(&value)
	case *time.Time:
		return stamp(value)
	case []string:
		return list(value)
	}
	return fmt.Sprint(c.value)
}

// listed returns the items of a store as the result of a command.
func listed[R interface{ cells() []cell }](items []R, err error) (Result, error) {
	return List[R](items), err
}

// A List is a list of items of one type, one line each.
type List[R interface{ cells() []cell }] []R

// Text writes a table with a line of headings.
func (l List[R]) Text(out io.Writer) error {
	var none R
	rows := make([][]string, 1+len(l))
	for _, c := range none.cells() {
		rows[0] = append(rows[0], c.heading)
	}
	for i, item := range l {
		for _, c := range item.cells() {
			rows[1+i] = append(rows[1+i], c.text())
		}
	}
	return writeTable(out, rows)
}

// An Outcome is the result of a change: a sentence, and its values for JSON.
type Outcome struct {
	Sentence string
	Values   map[string]any
}

// Text writes the sentence.
func (o Outcome) Text(out io.Writer) error { return write(out, o.Sentence+"\n") }

// MarshalJSON writes the values.
func (o Outcome) MarshalJSON() ([]byte, error) { return json.Marshal(o.Values) }

// plural counts things whose plural ends in s.
func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
