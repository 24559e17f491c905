package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Simulated clients do the product's daily work while it is killed, and record what was acknowledged. A request that
// was not acknowledged is repeated with the same Idempotency-Key, or the same form, if it has one, as a careful client
// does.

// A workload is the workspace of one round's clients and the work that was acknowledged there.
type workload struct {
	site
	form string // path of a public form

	mu           sync.Mutex
	current      []harness.Tokens // newest tokens of connections that lost no response
	confidential []harness.Tokens
	personal     map[string]string // name → personal access token, "" if the page that showed it was lost
	revoked      []harness.Tokens
	clients      []string          // IDs of registered applications
	programmes   map[string]string // name → id
	submissions  map[string]string // e-mail → status path
	imports      map[string]string // row name → status path
}

const submissionsOrigin = "https://www.canal-lane.example"

func newWorkload(t *testing.T, p *harness.Product) *workload {
	t.Helper()
	w := &workload{
		site: siteOf(t, p), personal: map[string]string{}, programmes: map[string]string{},
		submissions: map[string]string{}, imports: map[string]string{},
	}
	form := p.In(w.Workspace, w.Token).JSON(t, http.MethodPost, "/v1/engage/forms", map[string]any{
		"title": "Lend a hand", "allowedOrigins": []string{submissionsOrigin},
		"fields": []map[string]any{{"name": "email", "label": "E-mail", "type": "email", "required": true}},
	}).Wants(t, http.StatusCreated).Object(t)
	w.form = fmt.Sprint("/v1/engage/public/forms/", form["embedKey"])
	return w
}

// A stock holds what the clients of one round use up. Users have approved each item in advance.
type stock struct {
	refreshed, revoked []harness.Tokens
	consents           []approved
	appCodes           []string
}

type approved struct {
	harness.Attempt
	code string
}

func (w *workload) newStock(t *testing.T) stock {
	t.Helper()
	var s stock
	few, more := 2, 3 // each takes a consent; of those that are used one by one, some must be left when the kill comes
	if harness.Long() {
		few, more = 4, 4
	}
	for range few {
		s.refreshed = append(s.refreshed, w.connector.Connect(t, w.owner))
		s.appCodes = append(s.appCodes, w.app.Code(t, w.owner))
	}
	for range more {
		s.revoked = append(s.revoked, w.connector.Connect(t, w.owner))
		attempt := w.connector.Begin()
		s.consents = append(s.consents, approved{attempt, attempt.Code(t, w.owner)})
	}
	return s
}

// work runs all clients until ctx ends.
func (w *workload) work(ctx context.Context, t *testing.T, s stock) *sync.WaitGroup {
	var clients sync.WaitGroup
	for _, tokens := range s.refreshed {
		clients.Go(func() { w.refreshes(ctx, t, tokens) })
	}
	clients.Go(func() { oneByOne(ctx, s.revoked, func(tokens harness.Tokens) { w.revokes(t, tokens) }) })
	clients.Go(func() { oneByOne(ctx, s.consents, func(c approved) { w.connects(t, c) }) })
	clients.Go(func() { oneByOne(ctx, s.appCodes, func(code string) { w.connectsApp(t, code) }) })
	clients.Go(func() { w.makesTokens(ctx, t, w.AppURL+"/settings/developers/new?tenant="+w.Workspace.ID) })
	for _, client := range []func(*testing.T) bool{w.registers, w.writes, w.submits, w.orders} {
		clients.Go(func() {
			for ctx.Err() == nil && client(t) {
				unhurried()
			}
		})
	}
	return &clients
}

// oneByOne uses the things one at a time, with pauses in which other clients work and the victim may be killed.
func oneByOne[Thing any](ctx context.Context, things []Thing, use func(Thing)) {
	for _, thing := range things {
		if ctx.Err() != nil {
			return
		}
		use(thing)
		time.Sleep(rand.N(80 * time.Millisecond))
	}
}

func (w *workload) remember(what func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	what()
}

func unanswered(answer harness.Answer, err error) bool {
	return err != nil || answer.Status >= http.StatusInternalServerError
}

// refreshes refreshes one connection. After a lost response, the current token is unknown.
func (w *workload) refreshes(ctx context.Context, t *testing.T, newest harness.Tokens) {
	for ctx.Err() == nil {
		answer, err := w.connector.TryPost(t, w.connector.RefreshForm(newest.RefreshToken))
		if unanswered(answer, err) {
			return
		}
		newest = answer.Tokens(t)
		time.Sleep(5 * time.Millisecond)
		unhurried()
	}
	w.remember(func() { w.current = append(w.current, newest) })
}

// connects connects an assistant and refreshes once. The new tokens are recorded and not used.
func (w *workload) connects(t *testing.T, c approved) {
	answer, err := c.TryPost(t, c.CodeForm(c.code))
	if unanswered(answer, err) {
		return
	}
	answer, err = c.TryPost(t, c.RefreshForm(answer.Tokens(t).RefreshToken))
	if unanswered(answer, err) {
		return
	}
	tokens := answer.Tokens(t)
	w.remember(func() { w.current = append(w.current, tokens) })
}

func (w *workload) connectsApp(t *testing.T, code string) {
	answer, err := tryExchange(t, w.Product, w.app, code)
	if unanswered(answer, err) {
		return
	}
	tokens := answer.Tokens(t)
	w.remember(func() { w.confidential = append(w.confidential, tokens) })
}

var personalToken = regexp.MustCompile(`alm_pat_[0-9A-Za-z]+`)

// makesTokens submits the form for a personal access token until a page acknowledges it.
func (w *workload) makesTokens(ctx context.Context, t *testing.T, address string) {
	for ; ctx.Err() == nil; unhurried() {
		var page harness.Page
		open := func() (harness.Answer, error) {
			var err error
			page, err = w.owner.Try(t, http.MethodGet, address, "", "")
			return page.Answer, err
		}
		if _, opened := insist(t, "the form for a token opens", http.StatusOK, open); !opened {
			return
		}
		name := "Token " + uuid.NewString()
		form := tokenForm(t, page, name)
		create := func() (harness.Answer, error) {
			var err error
			page, err = trySubmit(t, w.owner, form)
			return page.Answer, err
		}
		answer, acknowledged := insist(t, "a personal access token is created", http.StatusOK, create)
		if !acknowledged {
			return
		}
		w.remember(func() { w.personal[name] = string(personalToken.Find(answer.Body)) })
	}
}

// tokenForm returns the form for a personal access token, filled in.
func tokenForm(t *testing.T, page harness.Page, name string) harness.Form {
	t.Helper()
	form := page.FormWith(t, `form:has(input[name=days]) input[name=name]`)
	form.Fields.Set("name", name)
	form.Fields.Set("days", "7")
	form.Fields.Set("permissions", harness.ReadProgrammes)
	return form
}

func (w *workload) revokes(t *testing.T, tokens harness.Tokens) {
	answer, err := tryRevoke(t, w.connector, tokens.RefreshToken)
	if err != nil || answer.Status != http.StatusOK {
		return
	}
	w.remember(func() { w.revoked = append(w.revoked, tokens) })
}

func (w *workload) registers(t *testing.T) bool {
	answer, err := tryJSON(t, w.As(w.Token), w.Clients(), harness.ConfidentialBody(harness.ReadProgrammes))
	if err != nil || answer.Status != http.StatusCreated {
		return false
	}
	id, _ := answer.Object(t)["clientId"].(string)
	w.remember(func() { w.clients = append(w.clients, id) })
	return true
}

// writes creates a programme, and repeats the request with the same key until it is acknowledged.
func (w *workload) writes(t *testing.T) bool {
	name := "Programme " + uuid.NewString()
	api := w.In(w.Workspace, w.Token).With("Idempotency-Key", uuid.NewString())
	answer, acknowledged := insist(t, "a programme is created", http.StatusCreated, func() (harness.Answer, error) {
		return tryJSON(t, api, harness.ListPath, map[string]any{"name": name})
	})
	if !acknowledged {
		return false
	}
	id, _ := answer.Object(t)["id"].(string)
	w.remember(func() { w.programmes[name] = id })
	return true
}

func (w *workload) submits(t *testing.T) bool {
	email := uuid.NewString() + "@example.org"
	api := w.API().With("Origin", submissionsOrigin).With("Idempotency-Key", uuid.NewString())
	form, ready := insist(t, "the form opens", http.StatusOK, func() (harness.Answer, error) {
		return api.Try(t, http.MethodGet, w.form, "", "")
	})
	if !ready {
		return false
	}
	token := form.Object(t)["submissionToken"]
	answer, acknowledged := insist(t, "a submission is accepted", http.StatusAccepted, func() (harness.Answer, error) {
		return tryJSON(t, api, w.form+"/submissions",
			map[string]any{"submissionToken": token, "answers": map[string]any{"email": email}})
	})
	if !acknowledged {
		return false
	}
	w.remember(func() { w.submissions[email] = w.statusPath(t, answer) })
	time.Sleep(20 * time.Millisecond) // the limit is 120 a minute
	return true
}

// orders starts an import, and repeats the request in the same way.
func (w *workload) orders(t *testing.T) bool {
	name := "Import " + uuid.NewString()
	api := w.In(w.Workspace, w.Token).With("Idempotency-Key", uuid.NewString())
	rows := rowsOf(name)
	answer, acknowledged := insist(t, "an import is accepted", http.StatusAccepted, func() (harness.Answer, error) {
		return api.Try(t, http.MethodPost, harness.ListPath+"/imports", "text/csv", "name\n"+rows[0]+"\n"+rows[1]+"\n")
	})
	if !acknowledged {
		return false
	}
	w.remember(func() { w.imports[name] = w.statusPath(t, answer) })
	time.Sleep(20 * time.Millisecond) // imports are processed one at a time
	return true
}

// rowsOf returns the programmes of an import.
func rowsOf(name string) [2]string { return [2]string{name + " first", name + " second"} }

func (w *workload) statusPath(t *testing.T, accepted harness.Answer) string {
	t.Helper()
	address, _ := accepted.Object(t)["statusUrl"].(string)
	path, ours := strings.CutPrefix(address, w.BaseURL)
	if !ours {
		t.Errorf("the statusUrl is not at our address:\n%s", accepted)
	}
	return path
}

// insist repeats a request until the response has the status. It reports what never happened.
func insist(t *testing.T, what string, status int, send func() (harness.Answer, error)) (harness.Answer, bool) {
	t.Helper()
	var answer harness.Answer
	for end := time.Now().Add(calmWithin); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		var err error
		if answer, err = send(); err == nil && answer.Status == status {
			return answer, true
		}
	}
	t.Errorf("not within %s: %s\n%s", calmWithin, what, answer)
	return answer, false
}
