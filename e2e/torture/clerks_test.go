package torture

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Clerks do the product's daily work while it is killed, and remember what was acknowledged. What was not is asked for again with the
// same Idempotency-Key where there is one, as a careful client does.

// An office is where the clerks of one round work.
type workplace struct {
	*harness.Product
	harness.Office
	head      *harness.Person
	connector harness.Connector
	form      string // path of a public form

	mu          sync.Mutex
	chains      []harness.Tokens // newest tokens of connections of which no answer was lost
	revoked     []harness.Tokens
	clients     []string // ids of registered applications
	programmes  map[string]string
	submissions map[string]string // e-mail → path of the status
}

const submissionsOrigin = "https://www.canal-lane.example"

func newWorkplace(t *testing.T, p *harness.Product) *workplace {
	t.Helper()
	office := p.Office(t)
	w := &workplace{Product: p, Office: office, head: p.Person(t, office.Head), connector: office.Connector(t, harness.ReadProgrammes),
		programmes: map[string]string{}, submissions: map[string]string{}}
	form := p.In(office.Tenant, office.Token).JSON(t, http.MethodPost, "/v1/engage/forms", map[string]any{
		"title": "Lend a hand", "allowedOrigins": []string{submissionsOrigin},
		"fields": []map[string]any{{"name": "email", "label": "E-mail", "type": "email", "required": true}},
	}).Wants(t, http.StatusCreated).Object(t)
	w.form = fmt.Sprint("/v1/engage/public/forms/", form["embedKey"])
	return w
}

// work lets every clerk work until ctx ends.
func (w *workplace) work(ctx context.Context, t *testing.T, connections []harness.Tokens) *sync.WaitGroup {
	var clerks sync.WaitGroup
	until := func(clerk func() bool) func() {
		return func() {
			for ctx.Err() == nil && clerk() {
			}
		}
	}
	for i, tokens := range connections {
		if i%2 == 0 {
			clerks.Go(func() { w.refreshes(ctx, t, tokens) })
		} else {
			clerks.Go(func() { w.revokes(t, tokens) })
		}
	}
	clerks.Go(until(func() bool { return w.registers(t) }))
	clerks.Go(until(func() bool { return w.writes(t) }))
	clerks.Go(until(func() bool { return w.submits(t) }))
	return &clerks
}

// refreshes one connection. Once an answer is lost, whether its token is current cannot be known.
func (w *workplace) refreshes(ctx context.Context, t *testing.T, newest harness.Tokens) {
	for ctx.Err() == nil {
		answer, err := w.connector.TryPost(t, w.connector.RefreshForm(newest.RefreshToken))
		if err != nil || answer.Status >= http.StatusInternalServerError {
			return
		}
		newest = answer.Tokens(t)
		time.Sleep(5 * time.Millisecond)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.chains = append(w.chains, newest)
}

func (w *workplace) revokes(t *testing.T, tokens harness.Tokens) {
	answer, err := w.connector.TryRevoke(t, tokens.RefreshToken)
	if err != nil || answer.Status != http.StatusOK {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.revoked = append(w.revoked, tokens)
}

func (w *workplace) registers(t *testing.T) bool {
	body, err := json.Marshal(harness.ConfidentialBody(harness.ReadProgrammes))
	if err != nil {
		t.Error(err)
		return false
	}
	answer, err := w.As(w.Token).Try(t, http.MethodPost, w.Clients(), "application/json", string(body))
	if err != nil || answer.Status != http.StatusCreated {
		return false
	}
	id, _ := answer.Object(t)["clientId"].(string)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clients = append(w.clients, id)
	return true
}

// writes a programme, and asks again with the same key until it is told that it was made.
func (w *workplace) writes(t *testing.T) bool {
	name := "Programme " + uuid.NewString()
	api := w.In(w.Tenant, w.Token).With("Idempotency-Key", uuid.NewString())
	answer, acknowledged := w.insist(func() (harness.Answer, error) {
		return api.Try(t, http.MethodPost, harness.ListPath, "application/json", fmt.Sprintf(`{"name":%q}`, name))
	}, http.StatusCreated)
	if !acknowledged {
		t.Errorf("a programme was not made within %s:\n%s", calmWithin, answer)
		return false
	}
	id, _ := answer.Object(t)["id"].(string)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.programmes[name] = id
	return true
}

func (w *workplace) submits(t *testing.T) bool {
	email := uuid.NewString() + "@example.org"
	api := w.API().With("Origin", submissionsOrigin).With("Idempotency-Key", uuid.NewString())
	form, ready := w.insist(func() (harness.Answer, error) { return api.Try(t, http.MethodGet, w.form, "", "") }, http.StatusOK)
	if !ready {
		t.Errorf("no form within %s:\n%s", calmWithin, form)
		return false
	}
	body, err := json.Marshal(map[string]any{"submissionToken": form.Object(t)["submissionToken"], "answers": map[string]any{"email": email}})
	if err != nil {
		t.Error(err)
		return false
	}
	answer, acknowledged := w.insist(func() (harness.Answer, error) {
		return api.Try(t, http.MethodPost, w.form+"/submissions", "application/json", string(body))
	}, http.StatusAccepted)
	if !acknowledged {
		t.Errorf("a submission was not accepted within %s:\n%s", calmWithin, answer)
		return false
	}
	status, _ := answer.Object(t)["statusUrl"].(string)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.submissions[email] = status[len(w.BaseURL):]
	time.Sleep(20 * time.Millisecond) // 120 a minute are let through
	return true
}

// insist repeats a request until it is answered with the status.
func (w *workplace) insist(send func() (harness.Answer, error), status int) (answer harness.Answer, done bool) {
	for end := time.Now().Add(calmWithin); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		var err error
		if answer, err = send(); err == nil && answer.Status == status {
			return answer, true
		}
	}
	return answer, false
}

// wantsAllKept checks everything that was acknowledged but the submissions.
func (w *workplace) wantsAllKept(t *testing.T) {
	t.Helper()
	for _, tokens := range w.revoked {
		w.connector.WantsDead(t, tokens)
	}
	for _, tokens := range w.chains {
		w.connector.WantsAlive(t, tokens)
	}
	for _, id := range w.clients {
		w.As(w.Token).Get(t, w.Clients()+"/"+id).Wants(t, http.StatusOK)
	}
	for name, id := range w.programmes {
		w.In(w.Tenant, w.Token).Get(t, harness.ListPath+"/"+id).Wants(t, http.StatusOK)
		if count := w.World.Count(t, `select count(*) from resource.programmes where tenant_id = $1 and name = $2`, w.Tenant.ID, name); count != 1 {
			t.Errorf("%d programmes of one order", count)
		}
	}
}

// processedWithin is more than a job waits whose process died.
const processedWithin = 3 * time.Minute

// wantsSubmissions checks that each was processed, and once in effect.
func (w *workplace) wantsSubmissions(t *testing.T) {
	t.Helper()
	for email, path := range w.submissions {
		status := ""
		for end := time.Now().Add(processedWithin); status != "processed" && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			status, _ = w.API().Get(t, path).Wants(t, http.StatusOK).Object(t)["status"].(string)
		}
		if status != "processed" {
			t.Errorf("a submission is %s in the end", status)
		}
		supporters := w.World.Count(t, `select count(*) from resource.supporters where tenant_id = $1 and email = $2`, w.Tenant.ID, email)
		stored := w.World.Count(t, `select count(*) from resource.submissions where tenant_id = $1 and answers->>'email' = $2`, w.Tenant.ID, email)
		if supporters != 1 || stored != 1 {
			t.Errorf("of one submission there are %d supporters and %d submissions", supporters, stored)
		}
	}
}
