package torture

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/almonerhq/almoner/deploy/local/demo"
	"github.com/almonerhq/almoner/e2e/harness"
)

// These steps are the callers' requests. The model states the expected response.

// wants compares a response with the expected status and error code, which may be flat or nested.
func wants(rt *rapid.T, answer harness.Answer, status int, code string) {
	rt.Helper()
	var body struct {
		Error json.RawMessage `json:"error"`
	}
	_ = json.Unmarshal(answer.Body, &body)
	if answer.Status != status || (code != "" && !strings.Contains(string(body.Error), `"`+code+`"`)) {
		rt.Fatalf("the model expects %d %s:\n%s", status, code, answer)
	}
}

// elsewhere draws a workspace, mostly the credential's own.
func (m *model) elsewhere(rt *rapid.T, b *bearer) *workspace {
	if rapid.IntRange(0, 3).Draw(rt, "elsewhere") == 0 {
		return one(rt, "workspace", m.workspaces)
	}
	return b.home
}

func (m *model) lists(rt *rapid.T) {
	b := one(rt, "credential", m.credentials)
	asked := m.elsewhere(rt, b)
	answer := m.p.In(asked.Workspace, b.text).Get(m.t, harness.ListPath+"?limit=200")
	if status, code := b.answer(asked, harness.ReadProgrammes); status != 0 {
		wants(rt, answer, status, code)
		return
	}
	wants(rt, answer, http.StatusOK, "")
	var page struct {
		Data []struct{ ID, Name string }
	}
	_ = json.Unmarshal(answer.Body, &page)
	rows := map[string]string{}
	for _, row := range page.Data {
		rows[row.ID] = row.Name
	}
	if !maps.Equal(rows, asked.programmes) {
		rt.Fatalf("the model has %d programmes in this workspace and the product lists %d, which differ: %v %v",
			len(asked.programmes), len(rows), asked.programmes, rows)
	}
}

// reads requests one programme of any workspace, in any workspace.
func (m *model) reads(rt *rapid.T) {
	b, owner := one(rt, "credential", m.credentials), one(rt, "owner", m.workspaces)
	if len(owner.programmes) == 0 {
		return
	}
	asked, id := m.elsewhere(rt, b), one(rt, "programme", slices.Sorted(maps.Keys(owner.programmes)))
	answer := m.p.In(asked.Workspace, b.text).Get(m.t, harness.ListPath+"/"+id)
	status, code := b.answer(asked, harness.ReadProgrammes)
	switch {
	case status != 0:
		wants(rt, answer, status, code)
	case asked != owner:
		wants(rt, answer, http.StatusNotFound, "NOT_FOUND")
	default:
		wants(rt, answer, http.StatusOK, "")
	}
}

func (m *model) writes(rt *rapid.T) {
	b := one(rt, "credential", m.credentials)
	asked := m.elsewhere(rt, b)
	name := fmt.Sprintf("Programme %d of %s", len(asked.programmes), asked.ID)
	answer := m.p.In(asked.Workspace, b.text).JSON(m.t, http.MethodPost, harness.ListPath, map[string]any{"name": name})
	if status, code := b.answer(asked, harness.WriteProgrammes); status != 0 {
		wants(rt, answer, status, code)
		return
	}
	wants(rt, answer, http.StatusCreated, "")
	id, _ := answer.Object(m.t)["id"].(string)
	asked.programmes[id] = name
}

func (m *model) introspects(rt *rapid.T) {
	b := one(rt, "credential", m.credentials)
	answer := m.p.DemoService().Introspect(m.t, b.text)
	wants(rt, answer, http.StatusOK, "")
	var result struct {
		Active      bool
		Permissions []string
		Workspace   string `json:"tenant_id"`
	}
	_ = json.Unmarshal(answer.Body, &result)
	permissions, active := b.may()
	slices.Sort(result.Permissions)
	slices.Sort(permissions)
	if result.Active != active || !slices.Equal(result.Permissions, permissions) ||
		(active && result.Workspace != b.home.ID) {
		rt.Fatalf("the model expects active %t, permissions %v:\n%s", active, permissions, answer)
	}
}

// register registers an application with the bearer, and adds it to the model if the product accepts it.
func (m *model) register(b *bearer, w *workspace, required []string) harness.Answer {
	answer := m.p.As(b.text).JSON(m.t, http.MethodPost, harness.ClientsPath(w.Workspace),
		harness.ConnectorBody(m.p.BaseURL+"/v1", required...))
	if answer.Status == http.StatusCreated {
		id, _ := answer.Object(m.t)["clientId"].(string)
		connector := m.p.ConnectorOf(demo.Client{
			ClientID: id, RedirectURI: harness.RedirectURI, Resource: m.p.BaseURL + "/v1",
			Scope: strings.Join(required, " "),
		})
		m.clients = append(m.clients, &application{Connector: connector, home: w, required: required})
	}
	return answer
}

// manages reports whether the credential may manage the workspace's applications with these permissions.
func (b *bearer) manages(w *workspace, permissions ...string) bool {
	held, active := b.may()
	return active && b.home == w && len(both(append(permissions, harness.APIAccess), held)) == len(permissions)+1
}

func (m *model) registers(rt *rapid.T) {
	b := one(rt, "credential", m.credentials)
	w := m.elsewhere(rt, b)
	required := some(rt, "required", []string{harness.ReadProgrammes, harness.WriteProgrammes}, 1)
	status := http.StatusForbidden
	if b.manages(w, required...) {
		status = http.StatusCreated
	}
	wants(rt, m.register(b, w, required), status, "")
}

func (m *model) deletesClient(rt *rapid.T) {
	b, c := one(rt, "credential", m.credentials), one(rt, "client", m.clients)
	w := m.elsewhere(rt, b)
	answer := m.p.As(b.text).Send(m.t, http.MethodDelete, harness.ClientsPath(w.Workspace)+"/"+c.ClientID, "", "")
	switch {
	case !b.manages(w):
		wants(rt, answer, http.StatusForbidden, "")
	case c.home != w || c.deleted:
		wants(rt, answer, http.StatusNotFound, "not_found")
	default:
		wants(rt, answer, http.StatusNoContent, "")
		c.deleted = true
		for _, g := range m.grants {
			g.over = g.over || g.client == c
		}
	}
}

func (m *model) consents(rt *rapid.T) {
	m.consent(rt, one(rt, "client", m.clients), one(rt, "user", m.users))
}

func (m *model) consent(rt *rapid.T, c *application, u *user) {
	attempt := c.Begin()
	page := u.browser.Arrive(m.t, m.p.AuthorizeURL(attempt.Query))
	held, member := c.home.members[u]
	granted := both(c.required, held)
	if slices.Contains(c.required, harness.ReadProgrammes) && !slices.Contains(held, harness.ReadProgrammes) {
		granted = nil // a write permission needs its read permission
	}
	if c.deleted || !member || !c.home.llm || len(granted) == 0 {
		if page.IsConsent() || page.Status < 400 || page.Status >= 500 {
			rt.Fatalf("the model expects no consent page:\n%s", page)
		}
		return
	}
	if !page.IsConsent() {
		rt.Fatalf("the model expects a consent page:\n%s", page)
	}
	g := &consent{client: c, attempt: attempt, code: page.Approve(m.t)}
	g.key, g.given = harness.NewKey(), time.Now()
	answer := attempt.Post(m.t, attempt.CodeForm(g.code), g.key)
	wants(rt, answer, http.StatusOK, "")
	tokens := answer.Tokens(m.t)
	g.id, g.refresh = harness.GrantOf(m.t, tokens.AccessToken), []string{tokens.RefreshToken}
	m.grants = append(m.grants, g)
	m.credentials = append(m.credentials,
		&bearer{text: tokens.AccessToken, owner: u, home: c.home, permissions: granted, grant: g})
}

func (m *model) refreshes(rt *rapid.T) {
	g := one(rt, "grant", m.grants)
	key := harness.NewKey()
	if tokens, given := m.tokens(rt, g, g.client.Refresh(m.t, g.refresh[len(g.refresh)-1], key)); given {
		g.refresh, g.key, g.given = append(g.refresh, tokens.RefreshToken), key, time.Now()
	}
}

// tokens checks a token response: a success unless the grant's client must be refused. It adds the access token.
func (m *model) tokens(rt *rapid.T, g *consent, answer harness.Answer) (tokens harness.Tokens, given bool) {
	if code := m.refusal(g); code != "" {
		wants(rt, answer, http.StatusBadRequest, code)
		return harness.Tokens{}, false
	}
	wants(rt, answer, http.StatusOK, "")
	tokens, like := answer.Tokens(m.t), m.bearerOf(g)
	m.credentials = append(m.credentials,
		&bearer{text: tokens.AccessToken, owner: like.owner, home: like.home, permissions: like.permissions, grant: g})
	return tokens, true
}

// repeats sends the last request of a grant again, as if its response was lost.
func (m *model) repeats(rt *rapid.T) {
	g := one(rt, "grant", m.grants)
	if time.Since(g.given) > codeLife {
		return
	}
	var answer harness.Answer
	if last := len(g.refresh) - 1; last == 0 {
		answer = g.attempt.Post(m.t, g.attempt.CodeForm(g.code), g.key)
	} else {
		answer = g.client.Refresh(m.t, g.refresh[last-1], g.key)
	}
	if tokens, given := m.tokens(rt, g, answer); given && tokens.RefreshToken != g.refresh[len(g.refresh)-1] {
		rt.Fatalf("the model expects the same refresh token again")
	}
}

func (m *model) replays(rt *rapid.T) {
	g := one(rt, "grant", m.grants)
	if len(g.refresh) < 2 {
		return
	}
	m.replayed(rt, g, g.client.Refresh(m.t, one(rt, "superseded", g.refresh[:len(g.refresh)-1])))
}

func (m *model) replaysCode(rt *rapid.T) {
	g := one(rt, "grant", m.grants)
	m.replayed(rt, g, g.attempt.Post(m.t, g.attempt.CodeForm(g.code)))
}

// replayed checks a replay, which ends the grant whatever else is wrong with it.
func (m *model) replayed(rt *rapid.T, g *consent, answer harness.Answer) {
	code := "invalid_grant"
	if g.client.deleted {
		code = "invalid_client"
	}
	wants(rt, answer, http.StatusBadRequest, code)
	g.over = true
}

func (m *model) revokes(rt *rapid.T) {
	g := one(rt, "grant", m.grants)
	answer := g.client.Revoke(m.t, one(rt, "token", g.refresh))
	if g.client.deleted {
		wants(rt, answer, http.StatusBadRequest, "invalid_client")
		return
	}
	wants(rt, answer, http.StatusOK, "")
	g.over = true
}
