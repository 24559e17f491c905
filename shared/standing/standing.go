// Package standing answers: what may this credential do in this workspace, at this moment?
//
// Both services ask it of Postgres for every request, by the SQL function account.standings, and keep no copy: what was
// true a second ago may not be any more (contract, section 6). The function's columns and this struct are the two ends
// of one contract, so they are read here alone.
package standing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/almonerhq/almoner/shared/perm"
)

// The kinds of credential.
const (
	PersonalAccessToken = "personal_access_token"
	Confidential        = "confidential"
	Connector           = "connector"
)

// Active is the one state in which a credential counts; the others name why it does not.
const Active = "active"

// ErrUnknown says that there is no such credential.
var ErrUnknown = errors.New("unknown credential")

// A Query names a credential, the workspace it is to act in, and the module it wants.
type Query struct {
	PATHash     []byte    // SHA-256 of a personal access token, or nil
	GrantID     uuid.UUID // the grant of an access token, where PATHash is nil
	KeyID       string    // the key that signed this access token; one that is removed or not stored is refused
	WorkspaceID uuid.UUID // zero: the credential's own workspace
	Module      string    // "": none
}

// A Standing is the answer. Its fields are the columns of account.standings, in their order, after the question's
// place.
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
	// the first use of this personal access token has to end those that it replaces: see EndReplaced
	Replaces bool
}

// Effective is what the credential may do: what it was given and what its user holds now, nothing else.
func (s Standing) Effective() perm.Set {
	if s.State != Active || !s.Member || (s.Kind == Connector && !s.LLMIntegration) {
		return nil
	}
	return s.CredentialPermissions.Intersect(s.MemberPermissions)
}

// SQL asks several questions. Its answer has a row for each whose credential is known, with its place among them, from
// 1 on.
const SQL = `select * from account.standings($1, $2, $3, $4, $5)`

// Function is what SQL calls, as to_regprocedure takes it. authserver's migrations bring it.
const Function = `account.standings(bytea[], uuid[], uuid[], text[], text[])`

// Args are the arguments of SQL.
func Args(questions []Query) []any {
	pats, modules := make([][]byte, len(questions)), make([]string, len(questions))
	grants, workspaces := make([]*uuid.UUID, len(questions)), make([]*uuid.UUID, len(questions))
	kids := make([]*string, len(questions))
	for i, q := range questions {
		pats[i], modules[i] = q.PATHash, q.Module
		if q.PATHash == nil {
			grants[i], kids[i] = &q.GrantID, &q.KeyID // a KeyID that was forgotten is "", which no key has
		}
		if q.WorkspaceID != uuid.Nil {
			workspaces[i] = &q.WorkspaceID
		}
	}
	return []any{pats, grants, workspaces, modules, kids}
}

// Querier is the part of a pgx pool that Read needs.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Read asks Postgres. It returns ErrUnknown when the credential does not exist.
func Read(ctx context.Context, db Querier, q Query) (Standing, error) {
	rows, err := db.Query(ctx, SQL, Args([]Query{q})...)
	if err != nil {
		return Standing{}, fmt.Errorf("read standing: %w", err)
	}
	all, err := Scan(rows, 1)
	if err != nil {
		return Standing{}, err
	}
	if all[0] == nil {
		return Standing{}, ErrUnknown
	}
	return *all[0], nil
}

// Scan reads the answer of SQL to as many questions, in their order, and closes rows. Of a credential that does not
// exist it is nil.
func Scan(rows pgx.Rows, questions int) ([]*Standing, error) {
	all := make([]*Standing, questions)
	_, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (place int, err error) {
		var s Standing
		var granted, held pgtype.FlatArray[string] // and not []string, about which pgx finds out anew in each answer
		if err = row.Scan(&place, &s.CredentialID, &s.Kind, &s.State, &s.UserID, &s.ClientID, &s.CredentialWorkspace, &granted,
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
