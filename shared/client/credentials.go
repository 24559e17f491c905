package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// Credentials gives access to the connections and personal access tokens of the workspace, their usage, the audit log
// and the connector policy (contract, section 5b). Without account:read:members, it shows those of the caller.
type Credentials struct{ c *caller }

// A Person is the user of a credential.
type Person struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Email string `json:"email"`
}

// A Connection is the access of one application for one member.
type Connection struct {
	ID     string `json:"id"`
	Client struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	} `json:"client"`
	User        Person     `json:"user"`
	Permissions []string   `json:"permissions"`
	Resource    string     `json:"resource"`
	State       string     `json:"state"`       // active or ended
	EndedReason string     `json:"endedReason"` // "" while it is active
	CreatedAt   time.Time  `json:"createdAt"`
	LastUsedAt  *time.Time `json:"lastUsedAt"` // nil if it was never used
	ExpiresAt   time.Time  `json:"expiresAt"`
	ApprovedBy  string     `json:"approvedBy"` // user or organisation
}

// A ConnectionFilter narrows a list of connections. The zero value matches every connection.
type ConnectionFilter struct {
	UserID   string
	ClientID string
	State    string // active or ended
}

// A PersonalAccessToken is a token without its value.
type PersonalAccessToken struct {
	ID          string     `json:"id"`
	Name        string     `json:"name"`
	User        Person     `json:"user"`
	Permissions []string   `json:"permissions"`
	CreatedAt   time.Time  `json:"createdAt"`
	LastUsedAt  *time.Time `json:"lastUsedAt"` // nil if it was never used
	ExpiresAt   time.Time  `json:"expiresAt"`
}

// A Usage is what a connection or personal access token did by one operation on one day.
type Usage struct {
	Day          string `json:"day"` // in UTC, such as 2026-11-30
	CredentialID string `json:"credentialId"`
	Kind         string `json:"kind"`      // personal_access_token or connection
	Operation    string `json:"operation"` // an operationId or the name of an MCP tool
	Service      string `json:"service"`   // that introspected the credential, or ""
	Requests     int64  `json:"requests"`
	Refused      int64  `json:"refused"` // those answered 401, 403 or 429
	Records      int64  `json:"records"` // returned or changed
}

// A UsageFilter narrows a list of usage. The zero value matches that of all credentials in the last 30 days.
type UsageFilter struct {
	CredentialID string // not for the usage of the client's own credential
	From, To     string // days in UTC, such as 2026-11-30, at most 92 apart
}

// An AuditEvent is an entry of the audit log.
type AuditEvent struct {
	ID      string         `json:"id"`
	At      time.Time      `json:"at"`
	Action  string         `json:"action"`  // such as grant.revoked
	Actor   string         `json:"actor"`   // such as user:<id>
	UserID  string         `json:"userId"`  // the user whom it concerns, or ""
	Subject string         `json:"subject"` // such as grant:<id>
	Detail  map[string]any `json:"detail"`
}

// An AuditFilter narrows a list of audit events. The zero value matches every event.
type AuditFilter struct {
	After  time.Time // events at or after this time
	Action string
	UserID string
}

// A ConnectorPolicy limits what connectors may be given in the workspace.
type ConnectorPolicy struct {
	Permissions []string `json:"permissions"`
	Platforms   []string `json:"platforms"` // claude, chatgpt, other
	Days        int      `json:"days"`      // from approval to the end of a connection
	ETag        string   `json:"-"`         // of this version, for IfMatch
}

func (a Credentials) path(kind, id string) string {
	path := "/v1/account/tenants/" + url.PathEscape(a.c.workspace) + "/" + kind
	if id != "" {
		path += "/" + url.PathEscape(id)
	}
	return path
}

// filtered returns a read with the parameters that are not "": names and values in turn.
func filtered(path string, parameters ...string) request {
	r := reading(path)
	r.query = url.Values{}
	for i := 0; i < len(parameters); i += 2 {
		if parameters[i+1] != "" {
			r.query.Set(parameters[i], parameters[i+1])
		}
	}
	return r
}

// Connections lists connections, the latest first.
func (a Credentials) Connections(ctx context.Context, f ConnectionFilter) iter.Seq2[Connection, error] {
	return list[Connection](ctx, a.c, filtered(a.path("connections", ""),
		"userId", f.UserID, "clientId", f.ClientID, "state", f.State))
}

// Connection returns one connection.
func (a Credentials) Connection(ctx context.Context, id string) (Connection, error) {
	return fetch[Connection](ctx, a.c, reading(a.path("connections", id)))
}

// Narrow leaves a connection only these permissions.
func (a Credentials) Narrow(
	ctx context.Context, id string, permissions []string, options ...WriteOption,
) (Connection, error) {
	body := map[string][]string{"permissions": permissions}
	return fetch[Connection](ctx, a.c, a.c.writeJSON(http.MethodPatch, a.path("connections", id), body, options))
}

// End ends a connection.
func (a Credentials) End(ctx context.Context, id string, options ...WriteOption) error {
	return a.remove(ctx, a.path("connections", id), options)
}

// Tokens lists the active personal access tokens of a user, or of all members if user is "", the latest first.
func (a Credentials) Tokens(ctx context.Context, user string) iter.Seq2[PersonalAccessToken, error] {
	return list[PersonalAccessToken](ctx, a.c, filtered(a.path("tokens", ""), "userId", user))
}

// Token returns one active token.
func (a Credentials) Token(ctx context.Context, id string) (PersonalAccessToken, error) {
	return fetch[PersonalAccessToken](ctx, a.c, reading(a.path("tokens", id)))
}

// Revoke revokes a token.
func (a Credentials) Revoke(ctx context.Context, id string, options ...WriteOption) error {
	return a.remove(ctx, a.path("tokens", id), options)
}

func (a Credentials) remove(ctx context.Context, path string, options []WriteOption) error {
	r := request{method: http.MethodDelete, path: path, header: http.Header{}}
	_, err := a.c.do(ctx, a.c.write(r, options), nil)
	return err
}

// Usage lists what connections and tokens did, the latest day first.
func (a Credentials) Usage(ctx context.Context, f UsageFilter) iter.Seq2[Usage, error] {
	return list[Usage](ctx, a.c, filtered(a.path("usage", ""), "credentialId", f.CredentialID, "from", f.From, "to",
		f.To))
}

// AuditEvents lists the audit log, the latest event first.
func (a Credentials) AuditEvents(ctx context.Context, f AuditFilter) iter.Seq2[AuditEvent, error] {
	r := filtered(a.path("audit-events", ""), "action", f.Action, "userId", f.UserID)
	setTime(r.query, "after", f.After)
	return list[AuditEvent](ctx, a.c, r)
}

// Policy returns the connector policy.
func (a Credentials) Policy(ctx context.Context) (ConnectorPolicy, error) {
	return a.policy(ctx, reading(a.path("connector-policy", "")))
}

// SetPolicy replaces the version of the policy that p.ETag names, or fails with CodePreconditionFailed in the flat
// shape (precondition_failed). It returns the new version.
func (a Credentials) SetPolicy(
	ctx context.Context, p ConnectorPolicy, options ...WriteOption,
) (ConnectorPolicy, error) {
	options = append([]WriteOption{IfMatch(p.ETag)}, options...)
	return a.policy(ctx, a.c.writeJSON(http.MethodPut, a.path("connector-policy", ""), p, options))
}

func (a Credentials) policy(ctx context.Context, r request) (p ConnectorPolicy, err error) {
	header, err := a.c.do(ctx, r, &p)
	p.ETag = header.Get("ETag")
	return p, err
}
