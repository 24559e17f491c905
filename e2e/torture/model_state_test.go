package torture

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/almonerhq/almoner/deploy/local/demo"
	"github.com/almonerhq/almoner/e2e/harness"
)

// A model is the expected state: members and their permissions, credentials, and rows.
type model struct {
	t *testing.T // fails if the product's state cannot be set up; rapid's T checks the responses
	p *harness.Product

	workspaces  []*workspace
	users       []*user
	clients     []*application
	credentials []*bearer
	grants      []*consent
}

type user struct {
	demo.User
	browser *harness.Person
}

type workspace struct {
	demo.Workspace
	llm, enabled, provisioned bool
	members                   map[*user][]string
	programmes                map[string]string // id → name
}

type application struct {
	harness.Connector
	home     *workspace
	required []string
	deleted  bool
}

// A consent is a grant. The last of its refresh tokens is current.
type consent struct {
	client  *application
	attempt harness.Attempt
	code    string
	id      string
	refresh []string
	key     string    // Idempotency-Key of the request that got the last refresh token
	given   time.Time // when that request succeeded
	over    bool      // by revocation, by deletion of the client, or by expiry
}

// A bearer is a personal access token or an access token of a grant.
type bearer struct {
	text        string
	owner       *user
	home        *workspace
	permissions []string
	grant       *consent // nil for a personal access token
	dead        bool     // of a personal access token
}

// choices are the permissions that users hold and applications request here.
func choices() []string {
	return []string{harness.APIAccess, harness.ReadProgrammes, harness.WriteProgrammes}
}

func newModel(t *testing.T, rt *rapid.T, p *harness.Product) *model {
	m := &model{t: t, p: p}
	for range 2 {
		m.opensWorkspace(rt)
		m.hasUser(rt)
	}
	for _, w := range m.workspaces {
		m.join(w, m.users[0], choices())
		m.token(w, m.users[0], choices())
		m.register(m.credentials[len(m.credentials)-1], w, []string{harness.ReadProgrammes, harness.WriteProgrammes})
	}
	m.consent(rt, m.clients[0], m.users[0])
	return m
}

// ended reports whether the credential works nowhere.
func (b *bearer) ended() bool {
	if b.grant != nil {
		return b.grant.over
	}
	return b.dead
}

// may returns the credential's current permissions in its workspace: token ∩ user. If active is false, the credential
// is invalid there.
func (b *bearer) may() (permissions []string, active bool) {
	held, member := b.home.members[b.owner]
	if b.ended() || !member || (b.grant != nil && !b.home.llm) {
		return nil, false
	}
	return both(b.permissions, held), true
}

// answer returns the status and code with which a Programmes route that needs a permission refuses in a workspace
// (contract, section 6); 0 means success.
func (b *bearer) answer(asked *workspace, needed string) (status int, code string) {
	permissions, active := b.may()
	switch {
	case b.ended():
		return http.StatusUnauthorized, "UNAUTHENTICATED"
	case asked != b.home, !active, !slices.Contains(permissions, needed):
		return http.StatusForbidden, "FORBIDDEN"
	case !asked.enabled:
		return http.StatusForbidden, "MODULE_NOT_ENABLED"
	case !asked.provisioned:
		return http.StatusServiceUnavailable, "TENANT_NOT_PROVISIONED"
	}
	return 0, ""
}

// refusal returns the error that the grant's client gets instead of tokens (contract, section 3); "" means success.
func (m *model) refusal(c *consent) string {
	b := m.bearerOf(c)
	if c.client.deleted {
		return "invalid_client"
	}
	if permissions, active := b.may(); !active || len(permissions) == 0 {
		return "invalid_grant"
	}
	return ""
}

// bearerOf returns any access token of the grant; all are equal.
func (m *model) bearerOf(c *consent) *bearer {
	for _, b := range m.credentials {
		if b.grant == c {
			return b
		}
	}
	m.t.Fatal("the model has a grant without an access token")
	return nil
}

func both(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(one string) bool { return !slices.Contains(b, one) })
}

func one[T any](rt *rapid.T, what string, of []T) T { return rapid.SampledFrom(of).Draw(rt, what) }

// some draws a sublist, in the list's order.
func some(rt *rapid.T, what string, of []string, least int) []string {
	drawn := rapid.SliceOfNDistinct(rapid.SampledFrom(of), least, len(of), rapid.ID[string]).Draw(rt, what)
	return both(of, drawn)
}
