// Package usage counts what credentials do, by day and operation (contract, section 5b).
//
// A Counter watches the requests of a process. It counts in memory, and adds the counts to account.usage in batches, so
// that no request waits for it. Its rules:
//
//   - C1: a request counts once, for the credential that it presents, whatever the answer; an unknown credential
//     counts nowhere. A credential that was not looked up, because the request was refused before that, is looked up
//     with the batch.
//   - C2: a batch counts once. It has a number, which its transaction stores in account.usage_writers: a batch whose
//     outcome is not known, because the connection was lost, is sent again with the same number.
//   - C3: while Postgres does not answer, the counts stay in memory, up to maxRows.
//   - C4: texts that only look like personal access tokens push out only each other: while they wait to be looked up,
//     they have a share of their own. Access tokens, whose signatures were verified, and the maxTokens tokens that
//     this process has looked up and that were used last are not in it.
//
// What handlers know is recorded with package web: tools (web.BeginCall) and the number of records (web.AddRecords).
// The LastUseRecorder of package standing is something else: it records when and from where a credential was last used.
package usage

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/net/web"
)

// Kind returns the kind of a credential.
func Kind(personal bool) string {
	if personal {
		return standing.PersonalAccessToken
	}
	return standing.Connection
}

// A Row is what one credential did by one operation on one day.
type Row struct {
	WorkspaceID  uuid.UUID
	CredentialID uuid.UUID // the grant or the personal access token
	Day          time.Time // midnight in UTC
	Operation    string    // an operationId of the API description, or the name of a tool
	ServiceID    uuid.UUID // the client that introspected the credential, or zero
	Service      string    // its name, in a list of authserver
	Kind         string    // of the credential: standing.PersonalAccessToken or standing.Connection
	UserID       uuid.UUID
	Counts
}

// Counts are the numbers of a Row.
type Counts struct {
	Requests int64
	Refused  int64 // those answered 401, 403 or 429
	Records  int64 // given or changed
}

func (c *Counts) add(more Counts) {
	c.Requests += more.Requests
	c.Refused += more.Refused
	c.Records += more.Records
}

// Day returns the day of a time in UTC.
func Day(at time.Time) time.Time { return at.UTC().Truncate(24 * time.Hour) }

// A Presented is the credential that a request presents. Its text is authentic, but it may be unknown or have ended.
type Presented struct {
	Query  standing.Query
	Claims *accesstoken.Claims // nil for a personal access token
}

// OfHash returns the personal access token with this SHA-256.
func OfHash(hash []byte) Presented { return Presented{Query: standing.Query{PATHash: hash}} }

// OfClaims returns the credential of an access token, whose signature was verified.
func OfClaims(c accesstoken.Claims) Presented {
	return Presented{standing.Query{GrantID: c.GrantID, GrantIn: c.WorkspaceID, KeyID: c.KeyID}, &c}
}

// Record records for the Counter that the request of ctx presents the credential.
func (p Presented) Record(ctx context.Context) { web.RecordPresented(ctx, &p) }

// RecordStanding records whose credential the request of ctx presents, for the Counter and the access log. s is its
// standing, in any state, or nil if it does not exist.
func (p Presented) RecordStanding(ctx context.Context, s *standing.Standing) {
	if caller, known := p.caller(s); known {
		web.RecordCaller(ctx, caller)
	} else {
		web.RecordPresented(ctx, nil)
	}
}

// keyRemoved is the state of a credential whose access token was signed with a removed key. Its claims prove nothing.
const keyRemoved = "key_removed"

// caller returns whose credential it is. known is false if it does not exist, or was not issued from its grant.
func (p Presented) caller(s *standing.Standing) (caller web.Caller, known bool) {
	if s == nil || p.Claims != nil && (s.State == keyRemoved || !s.Backs(*p.Claims)) {
		return web.Caller{}, false
	}
	caller = web.Caller{
		Credential: s.CredentialID,
		Workspace:  s.CredentialWorkspace,
		User:       s.UserID,
		Personal:   s.Kind == standing.PersonalAccessToken,
	}
	if s.ClientID != nil {
		caller.Client = *s.ClientID
	}
	return caller, true
}
