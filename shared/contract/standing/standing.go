// Package standing reads what a credential may do in a workspace at this moment.
//
// Both services query Postgres for every request, with the SQL function account.standings, and store no copy,
// because a standing may change within a second (contract, section 6). The function's columns and this struct
// are two sides of one contract, so only this package reads them.
package standing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// The kinds of credential.
const (
	PersonalAccessToken = "personal_access_token"
	Confidential        = "confidential"
	Connector           = "connector"
)

// Connection is the kind of every credential but personal access tokens where the client does not matter: in usage and
// the networks.
const Connection = "connection"

// Active is the only state in which a credential is valid; the others name the reason why it is not.
const Active = "active"

// ErrUnknown reports that the credential does not exist.
var ErrUnknown = errors.New("unknown credential")

// A Query names a credential, the workspace it acts in, and the module it uses.
type Query struct {
	PATHash     []byte    // SHA-256 of a personal access token, or nil
	GrantID     uuid.UUID // the grant of an access token, if PATHash is nil
	GrantIn     uuid.UUID // the workspace of the grant, from the access token
	KeyID       string    // the key that signed this access token; a removed or unknown key is refused
	WorkspaceID uuid.UUID // zero for the credential's own workspace
	Module      string    // "" for none
}

// A Standing is the result of a Query. Its fields are the columns of account.standings, in order, after the
// position of the query.
type Standing struct {
	CredentialID          uuid.UUID
	Kind                  string
	State                 string
	UserID                uuid.UUID
	ClientID              *uuid.UUID
	CredentialWorkspace   uuid.UUID
	CredentialPermissions perm.Set
	Resource              *string
	EndsAt                time.Time
	Member                bool
	MemberPermissions     perm.Set
	LLMIntegration        bool
	ModuleEnabled         bool
	ModuleProvisioned     bool
	// Replaces reports that the first use of this personal access token must end the tokens that it replaces:
	// see EndReplaced.
	Replaces bool
}

// Usable reports whether the credential may act in its workspace now: it is active, its user is a member, and if it
// is a connector's, connectors are allowed there (spec 4.4 and 5.3). What it may do is Effective.
func (s Standing) Usable() bool { return s.State == Active && s.Member && !s.ConnectorsOff() }

// ConnectorsOff reports whether this is a connector's credential in a workspace whose LLM integration is off.
func (s Standing) ConnectorsOff() bool { return s.Kind == Connector && !s.LLMIntegration }

// Effective returns what the credential may do: the permissions that it was granted and that its user has now.
func (s Standing) Effective() perm.Set {
	if !s.Usable() {
		return nil
	}
	return s.CredentialPermissions.Intersect(s.MemberPermissions)
}

// SQL runs several queries. Its result has a row for each known credential, with the position of the query, from 1.
const SQL = `select * from account.standings($1, $2, $3, $4, $5, $6)`

// Function is the function that SQL calls, in the form of to_regprocedure. authserver's migrations create it.
const Function = `account.standings(bytea[], uuid[], uuid[], uuid[], text[], text[])`

// Args returns the arguments of SQL.
func Args(questions []Query) []any {
	pats, modules := make([][]byte, len(questions)), make([]string, len(questions))
	grants, workspaces := make([]*uuid.UUID, len(questions)), make([]*uuid.UUID, len(questions))
	kids, owners := make([]*string, len(questions)), make([]*uuid.UUID, len(questions))
	for i, q := range questions {
		pats[i], modules[i] = q.PATHash, q.Module
		if q.PATHash == nil {
			grants[i], owners[i] = &q.GrantID, &q.GrantIn
			kids[i] = &q.KeyID // an omitted KeyID is "", which matches no key
		}
		if q.WorkspaceID != uuid.Nil {
			workspaces[i] = &q.WorkspaceID
		}
	}
	return []any{pats, grants, owners, workspaces, modules, kids}
}

// Querier is the part of a pgx pool that Read needs.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Read runs one query. It returns ErrUnknown if the credential does not exist.
func Read(ctx context.Context, db Querier, q Query) (Standing, error) {
	all, err := ReadAll(ctx, db, []Query{q})
	switch {
	case err != nil:
		return Standing{}, err
	case all[0] == nil:
		return Standing{}, ErrUnknown
	}
	return *all[0], nil
}

// ReadAll runs several queries, and returns their results in order. The entry of an unknown credential is nil.
func ReadAll(ctx context.Context, db Querier, questions []Query) ([]*Standing, error) {
	rows, err := db.Query(ctx, SQL, Args(questions)...)
	if err != nil {
		return nil, fmt.Errorf("read standing: %w", err)
	}
	return Scan(rows, len(questions))
}

// Scan reads the result of SQL for this number of queries, in order, and closes rows. The entry of an unknown
// credential is nil.
func Scan(rows pgx.Rows, questions int) ([]*Standing, error) {
	all := make([]*Standing, questions)
	_, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (place int, err error) {
		var s Standing
		var granted, held pgtype.FlatArray[string] // pgx would plan the scan of []string for each result
		if err = row.Scan(&place, &s.CredentialID, &s.Kind, &s.State, &s.UserID, &s.ClientID,
			&s.CredentialWorkspace, &granted,
			&s.Resource, &s.EndsAt, &s.Member, &held, &s.LLMIntegration, &s.ModuleEnabled, &s.ModuleProvisioned,
			&s.Replaces); err != nil {
			return 0, err
		}
		s.CredentialPermissions, s.MemberPermissions = perm.FromStrings(granted), perm.FromStrings(held)
		if s.Kind == Connector && s.Resource != nil {
			s.CredentialPermissions = s.CredentialPermissions.Usable(*s.Resource)
		}
		all[place-1] = &s
		return place, nil
	})
	if err != nil {
		return nil, fmt.Errorf("read standing: %w", err)
	}
	return all, nil
}

// Backs reports whether the access token was issued for the grant of this standing: all its claims match the grant.
func (s Standing) Backs(c accesstoken.Claims) bool {
	client, err := accesstoken.ClientID(c.ClientID)
	return err == nil && s.ClientID != nil && *s.ClientID == client && s.UserID == c.Subject &&
		s.CredentialWorkspace == c.WorkspaceID &&
		s.Resource != nil && *s.Resource == c.Audience &&
		s.CredentialID == c.GrantID
}

// Names are the display names of the parties to a credential. The fields are the columns of account.names, in order.
type Names struct {
	User       string
	Workspace  string
	Credential string // the name of the client or of the personal access token
	CreatedAt  time.Time
}

// NamesSQL is the query, for callers that batch it with SQL. Its arguments are NamesArgs.
const NamesSQL = `select * from account.names($1, $2, $3)`

// NamesArgs returns the arguments of NamesSQL.
func (q Query) NamesArgs() []any { return []any{q.PATHash, q.GrantID, q.GrantIn} }

// ScanNames reads the result of NamesSQL and closes rows. It returns ErrUnknown if the credential does not exist.
func ScanNames(rows pgx.Rows) (Names, error) { return scanOne[Names](rows, "read names") }

func scanOne[Row any](rows pgx.Rows, what string) (Row, error) {
	one, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Row])
	if errors.Is(err, pgx.ErrNoRows) {
		return one, ErrUnknown
	}
	if err != nil {
		return one, fmt.Errorf("%s: %w", what, err)
	}
	return one, nil
}

// AskableSQL reads what the client of a grant could be granted if it requested consent again. Its arguments are
// the grant's id and its workspace, and its result is null if there is no such grant.
const AskableSQL = `select account.askable($1, $2)`

// A Profile describes the parties to a credential, for the user of the credential alone. The fields are the columns of
// account.profile, in order.
type Profile struct {
	User       string // display name
	Email      string
	Workspace  string // display name
	Credential string // the name of the client or of the personal access token
}

// ProfileFunction is the function that ProfileSQL calls, in the form of to_regprocedure. authserver's migrations create
// it.
const ProfileFunction = `account.profile(bytea, uuid, uuid)`

// ProfileSQL is the query, for callers that batch it with SQL. Its arguments are NamesArgs.
const ProfileSQL = `select * from account.profile($1, $2, $3)`

// ScanProfile reads the result of ProfileSQL and closes rows. It returns ErrUnknown if the credential does not exist.
func ScanProfile(rows pgx.Rows) (Profile, error) { return scanOne[Profile](rows, "read a profile") }

// EndReplaced ends every token that a personal access token replaces. Call it before responding to a valid credential
// whose standing has Replaces set: the replaced tokens end when the new one is first used, and not later.
func EndReplaced(ctx context.Context, db Execer, token uuid.UUID) error {
	if _, err := db.Exec(ctx, `select account.end_replaced($1)`, token); err != nil {
		return fmt.Errorf("end replaced tokens: %w", err)
	}
	return nil
}
