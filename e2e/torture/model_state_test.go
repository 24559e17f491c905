package torture

import (
	"flag"
	"net/http"
	"slices"
	"strconv"
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
func (b *bearer) ended() bool { return b.dead || b.grant != nil && b.grant.over }

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
	at := slices.IndexFunc(m.credentials, func(b *bearer) bool { return b.grant == c })
	if at < 0 {
		m.t.Fatal("the model has a grant without an access token")
	}
	return m.credentials[at]
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

// TestModel_MatchesSystem changes users, memberships, grants, tokens, workspaces and time at random. After each step
// the product must respond as a one-page model does: status, permissions, and the rows of each workspace. Each model
// has its own workspaces, so many run concurrently.
func TestModel_MatchesSystem(t *testing.T) {
	models, steps := harness.Rounds(12, 10_000), 50
	batch := min(models/workers, 25) // models that share a harness.Product
	if harness.Long() {
		steps = 100
	}
	harness.Record(t, "%d models, %d steps each on average", models, steps)
	for name, value := range map[string]string{
		"checks": strconv.Itoa(batch), "steps": strconv.Itoa(steps), "shrinktime": "20s", "nofailfile": "true",
	} {
		must(t, flag.Set("rapid."+name, value))
	}
	running := startedPair(t)
	spread(t, models/batch, func(*testing.T) func(*testing.T) {
		return func(t *testing.T) {
			t.Run("batch", func(t *testing.T) { // a subtest, which releases its resources
				p := harness.NewProduct(t, running, &seenSecrets)
				rapid.Check(t, func(rt *rapid.T) { newModel(t, rt, p).live(rt) })
			})
		}
	})
}

// live takes random steps. A failed run prints their names. Some are more frequent.
func (m *model) live(rt *rapid.T) {
	rt.Repeat(map[string]func(*rapid.T){
		"workspace": m.opensWorkspace, "user": m.hasUser, "join": m.joins, "leave": m.leaves, "permit": m.permits,
		"LLM": m.switchesLLM, "module": m.switchesModule, "register": m.registers, "delete client": m.deletesClient,
		"consent": m.consents, "refresh": m.refreshes, "refresh 2": m.refreshes, "repeat": m.repeats,
		"repeat 2": m.repeats, "replay": m.replays, "replay code": m.replaysCode, "revoke": m.revokes,
		"grant's time": m.endsGrant, "PAT": m.makesToken, "PAT ends": m.endsToken, "list": m.lists, "list 2": m.lists,
		"list 3": m.lists, "read": m.reads, "write": m.writes, "introspect": m.introspects,
		"introspect 2": m.introspects,
	})
}

// These steps change the state by administration and time, not through the product.

func (m *model) opensWorkspace(*rapid.T) {
	if len(m.workspaces) == 4 {
		return
	}
	m.workspaces = append(m.workspaces, &workspace{
		Workspace: m.p.Database.Workspace(m.t), llm: true, enabled: true, provisioned: true,
		members: map[*user][]string{}, programmes: map[string]string{},
	})
}

func (m *model) hasUser(*rapid.T) {
	if len(m.users) == 4 {
		return
	}
	someone := m.p.Database.User(m.t)
	m.users = append(m.users, &user{User: someone, browser: m.p.Person(m.t, someone)})
}

func (m *model) join(w *workspace, u *user, permissions []string) {
	m.p.Database.Join(m.t, w.Workspace, u.User, permissions...)
	w.members[u] = permissions
}

func (m *model) joins(rt *rapid.T) {
	w, u := one(rt, "workspace", m.workspaces), one(rt, "user", m.users)
	if _, member := w.members[u]; !member {
		m.join(w, u, some(rt, "permissions", choices(), 0))
	}
}

func (m *model) leaves(rt *rapid.T) {
	w, u := one(rt, "workspace", m.workspaces), one(rt, "user", m.users)
	if _, member := w.members[u]; member {
		m.p.Database.Leave(m.t, w.Workspace, u.User)
		delete(w.members, u)
	}
}

func (m *model) permits(rt *rapid.T) {
	w, u := one(rt, "workspace", m.workspaces), one(rt, "user", m.users)
	permissions := some(rt, "permissions", choices(), 0)
	if _, member := w.members[u]; member {
		m.p.Database.Permit(m.t, w.Workspace, u.User, permissions...)
		w.members[u] = permissions
	}
}

func (m *model) switchesLLM(rt *rapid.T) {
	w := one(rt, "workspace", m.workspaces)
	w.llm = !w.llm
	m.p.Database.SetLLM(m.t, w.Workspace, w.llm)
}

func (m *model) switchesModule(rt *rapid.T) {
	w := one(rt, "workspace", m.workspaces)
	if rapid.Bool().Draw(rt, "enabled") {
		w.enabled = !w.enabled
	} else {
		w.provisioned = !w.provisioned
	}
	m.p.Database.SetModule(m.t, w.Workspace, w.enabled, w.provisioned)
}

func (m *model) token(w *workspace, u *user, permissions []string) {
	text := m.p.Database.Token(m.t, w.Workspace, u.User, permissions...)
	m.credentials = append(m.credentials, &bearer{text: text, owner: u, home: w, permissions: permissions})
}

func (m *model) makesToken(rt *rapid.T) {
	m.token(one(rt, "workspace", m.workspaces), one(rt, "user", m.users), some(rt, "permissions", choices(), 1))
}

func (m *model) endsToken(rt *rapid.T) {
	b := one(rt, "credential", m.credentials)
	end := one(rt, "by",
		[]func(){func() { m.p.Database.RevokeToken(m.t, b.text) }, func() { m.p.Database.ExpireToken(m.t, b.text) }})
	if b.grant == nil {
		end()
		b.dead = true
	}
}

func (m *model) endsGrant(rt *rapid.T) {
	c := one(rt, "grant", m.grants)
	m.p.Database.EndGrantIn(m.t, c.id, -1e9)
	c.over = true
}
