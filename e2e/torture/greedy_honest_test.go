package torture

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/almonerhq/almoner/e2e/harness"
)

// honestUsers are clients and users of one workspace that send few requests at a time.
type honestUsers struct {
	p         *harness.Product
	ws        harness.TestWorkspace
	connector harness.Connector
	known     []*harness.Person // at browsers with which they have signed in before
	tokens    harness.Tokens
	kinds     []honestKind
	atMost    time.Duration // the longest p99 of the requests; 0 if times are not checked

	mu   sync.Mutex
	took map[string][]time.Duration // by kind, over all rounds
	busy int                        // 429 responses to new browsers
}

// An honestKind is a request that is repeated, with the expected status.
type honestKind struct {
	name  string
	want  int
	pause time.Duration
	ask   func(t *testing.T) (harness.Answer, error)
	// mayWait allows 429: a flood of wrong passwords from many addresses cannot be distinguished from users at new
	// browsers.
	mayWait bool
}

// newHonest returns users of a workspace who send nothing yet.
func newHonest(t *testing.T, p *harness.Product) *honestUsers {
	t.Helper()
	s := siteOf(t, p)
	tokens := s.connector.Connect(t, s.owner)
	took := map[string][]time.Duration{}
	return &honestUsers{p: p, ws: s.TestWorkspace, connector: s.connector, tokens: tokens, took: took}
}

// get returns a request for a path of the API.
func (h *honestUsers) get(path string) func(t *testing.T) (harness.Answer, error) {
	return func(t *testing.T) (harness.Answer, error) {
		return h.p.In(h.ws.Workspace, h.ws.Token).Try(t, http.MethodGet, path, "", "")
	}
}

func newHonestUsers(t *testing.T, p *harness.Product) *honestUsers {
	t.Helper()
	h := newHonest(t, p)
	for range harness.Rounds(4, 40) {
		h.known = append(h.known, p.Person(t, h.ws.Member(t, harness.ReadProgrammes)).SignedIn(t))
	}
	api := p.In(h.ws.Workspace, h.ws.Token)
	form := url.Values{"token": {h.ws.Token}}.Encode()
	h.kinds = []honestKind{
		{name: "refresh", want: http.StatusOK, ask: h.refresh},
		{name: "list", want: http.StatusOK, ask: h.get(harness.ListPath)},
		{name: "write", want: http.StatusCreated, ask: func(t *testing.T) (harness.Answer, error) {
			return tryWrite(t, api)
		}},
		{name: "introspect", want: http.StatusOK, ask: func(t *testing.T) (harness.Answer, error) {
			service := p.DemoService().API()
			return service.Try(t, http.MethodPost, harness.IntrospectPath, formType, form)
		}},
		{name: "sign in", want: http.StatusSeeOther, pause: rarely, ask: func(t *testing.T) (harness.Answer, error) {
			next := h.known[0]
			h.known = append(h.known[1:], next)
			return h.signIn(t, next)
		}},
		{name: "sign in at a new browser", want: http.StatusSeeOther, pause: rarely, mayWait: true, ask: h.signInAnew},
	}
	return h
}

const (
	often  = 50 * time.Millisecond
	rarely = 500 * time.Millisecond
)

func (h *honestUsers) refresh(t *testing.T) (harness.Answer, error) {
	answer, err := h.connector.TryPost(t, h.connector.RefreshForm(h.tokens.RefreshToken))
	if err == nil && answer.Status == http.StatusOK {
		h.tokens = answer.Tokens(t)
	}
	return answer, err
}

func (h *honestUsers) signInAnew(t *testing.T) (harness.Answer, error) {
	return h.signIn(t, h.p.Person(t, h.ws.Owner))
}

func (h *honestUsers) signIn(t *testing.T, person *harness.Person) (harness.Answer, error) {
	page, err := trySubmit(t, person, harness.Form{
		Action: h.p.AppURL + "/login",
		Fields: url.Values{"email": {person.Email}, "password": {person.Password}},
	})
	return page.Answer, err
}

// work sends requests of each kind until ctx ends, checks the responses, and returns a summary.
func (h *honestUsers) work(ctx context.Context, t *testing.T, during string) string {
	t.Helper()
	var users sync.WaitGroup
	var mu sync.Mutex
	var all []time.Duration
	for _, kind := range h.kinds {
		users.Go(func() {
			took := h.send(ctx, t, during, kind)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, took...)
		})
	}
	users.Wait()
	p99 := slowestOfAHundred(all)
	if h.atMost > 0 && p99 > h.atMost {
		t.Errorf("%s: p99 of honest requests is %s, want at most %s", during, p99, h.atMost)
	}
	return fmt.Sprintf("%d honest requests, p99 %s", len(all), p99)
}

// send sends requests of one kind and returns their durations.
func (h *honestUsers) send(ctx context.Context, t *testing.T, during string, kind honestKind) (took []time.Duration) {
	failed := 0
	for ctx.Err() == nil {
		began := time.Now()
		answer, err := kind.ask(t)
		lasted := time.Since(began)
		time.Sleep(max(often, kind.pause))
		if kind.mayWait && answer.Status == http.StatusTooManyRequests {
			h.mu.Lock()
			h.busy++
			h.mu.Unlock()
			continue
		}
		took = append(took, lasted)
		if err != nil {
			answer.Body = []byte(err.Error())
		}
		if answer.Status == kind.want {
			continue
		}
		if failed++; failed == 1 {
			t.Errorf("%s: an honest request (%s) failed after %s:\n%s", during, kind.name, lasted, answer)
		}
	}
	if failed > 1 {
		t.Errorf("%s: %d of %d honest requests (%s) failed", during, failed, len(took), kind.name)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.took[kind.name] = append(h.took[kind.name], took...)
	return took
}

// judgeTimes enables the checks of times if the machine is quiet: honest requests were fast while they ran alone.
func (h *honestUsers) judgeTimes(t *testing.T, atMost time.Duration) {
	t.Helper()
	p99 := slowestOfAHundred(slices.Concat(slices.Collect(maps.Values(h.took))...))
	clear(h.took)
	if h.atMost = atMost; p99 > quietAtMost {
		h.atMost = 0
		t.Logf("times are not checked: without any attack the p99 of honest requests is %s", p99)
	}
}

// byKind checks the durations of each kind over all rounds, and returns a summary.
func (h *honestUsers) byKind(t *testing.T) string {
	t.Helper()
	var parts []string
	if h.atMost == 0 {
		parts = append(parts, "times not checked")
	}
	for _, kind := range slices.Sorted(maps.Keys(h.took)) {
		p99 := slowestOfAHundred(h.took[kind])
		parts = append(parts, fmt.Sprintf("%s %s of %d", kind, p99, len(h.took[kind])))
		if h.atMost > 0 && p99 > h.atMost {
			t.Errorf("p99 of honest requests (%s) is %s, want at most %s", kind, p99, h.atMost)
		}
	}
	if h.busy > 0 {
		parts = append(parts, fmt.Sprintf("%d sign-ins at a new browser got 429", h.busy))
	}
	return strings.Join(parts, ", ")
}

func slowestOfAHundred(took []time.Duration) time.Duration {
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[len(took)*99/100].Round(time.Millisecond)
}
