// Package standing answers: what may this credential do in this workspace, at this moment?
//
// Both services ask it of Postgres for every request, by one call of the SQL function account.standing, and keep no
// copy: what was true a second ago may not be any more (contract, section 6). The function's columns and this
// struct are the two ends of one contract, so they are read here alone.
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

// A Question names a credential, the workspace it is to act in, and the module it wants.
type Question struct {
	PATHash []byte    // SHA-256 of a personal access token, or nil
	GrantID uuid.UUID // the grant of an access token, where PATHash is nil
	Tenant  uuid.UUID // zero: the credential's own workspace
	Module  string    // "": none
}

// A Standing is the answer. Its fields are the columns of account.standing, in their order.
type Standing struct {
	CredentialID          uuid.UUID
	Kind                  string
	State                 string
	UserID                uuid.UUID
	ClientID              *uuid.UUID
	CredentialTenant      uuid.UUID
	CredentialPermissions perm.Set
	Resource              *string
	EndsAt                time.Time
	Member                bool
	MemberPermissions     perm.Set
	LLMIntegration        bool
	ModuleEnabled         bool
	ModuleProvisioned     bool
}

// Effective is what the credential may do: what it was given and what its user holds now, nothing else.
func (s Standing) Effective() perm.Set {
	if s.State != Active || !s.Member || (s.Kind == Connector && !s.LLMIntegration) {
		return nil
	}
	return s.CredentialPermissions.Intersect(s.MemberPermissions)
}

// SQL and Args are the query, for callers that put it in a batch with their own.
const SQL = `select * from account.standing($1, $2, $3, $4)`

// Args are the arguments of SQL.
func (q Question) Args() []any {
	grant, tenant := q.named()
	return []any{q.PATHash, grant, tenant, q.Module}
}

// named are the grant and the workspace, each nil where the question names none.
func (q Question) named() (grant, tenant *uuid.UUID) {
	if q.PATHash == nil {
		grant = &q.GrantID
	}
	if q.Tenant != uuid.Nil {
		tenant = &q.Tenant
	}
	return grant, tenant
}

// Querier is the part of a pgx pool that Read needs.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Read asks Postgres. It returns ErrUnknown when the credential does not exist.
func Read(ctx context.Context, db Querier, q Question) (Standing, error) {
	rows, err := db.Query(ctx, SQL, q.Args()...)
	if err != nil {
		return Standing{}, fmt.Errorf("read standing: %w", err)
	}
	return Scan(rows)
}

// Scan reads the answer of SQL and closes rows.
func Scan(rows pgx.Rows) (Standing, error) {
	s, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (Standing, error) { return scan(row) })
	if errors.Is(err, pgx.ErrNoRows) {
		return Standing{}, ErrUnknown
	}
	if err != nil {
		return Standing{}, fmt.Errorf("read standing: %w", err)
	}
	return s, nil
}

// scan reads a row: what comes before the function's columns, and these.
func scan(row pgx.CollectableRow, before ...any) (Standing, error) {
	var s Standing
	var granted, held pgtype.FlatArray[string] // and not []string, about which pgx finds out anew in each answer
	err := row.Scan(append(before, &s.CredentialID, &s.Kind, &s.State, &s.UserID, &s.ClientID, &s.CredentialTenant, &granted,
		&s.Resource, &s.EndsAt, &s.Member, &held, &s.LLMIntegration, &s.ModuleEnabled, &s.ModuleProvisioned)...)
	s.CredentialPermissions, s.MemberPermissions = perm.FromStrings(granted), perm.FromStrings(held)
	return s, err
}
