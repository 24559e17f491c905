package e2e

import (
	"net/http"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Contract, section 3 ("A store that does not answer: 503 temporarily_unavailable, Retry-After, and no state half
// changed"), sections 5 and 6, on private stacks whose stores are stopped, paused and erased.

// A scene is the state before an outage: unused codes, valid tokens, an open consent page.
type scene struct {
	ws           harness.TestWorkspace
	owner        *harness.Person
	app          harness.ConfidentialApp
	connector    harness.Connector
	attempt      harness.Attempt
	code         string // of attempt
	appCode      string
	tokens, long harness.Tokens
	page         harness.Page
	pageClient   string
}

func prepare(t *testing.T, p *harness.Product) scene {
	t.Helper()
	ws := p.NewWorkspace(t)
	s := scene{
		ws:        ws,
		owner:     p.Person(t, ws.Owner),
		app:       ws.Confidential(t, "", harness.ReadProgrammes),
		connector: ws.Connector(t, harness.ReadProgrammes),
	}
	s.attempt = s.connector.Begin()
	s.tokens, s.long = s.connector.Connect(t, s.owner), s.app.Connect(t, s.owner)
	other := ws.Connector(t, harness.ReadProgrammes)
	s.page, s.pageClient = s.owner.Consent(t, other.Begin().Query), other.ClientID
	s.code, s.appCode = s.attempt.Code(t, s.owner), s.app.Code(t, s.owner)
	return s
}

// wantsTokensUnavailable checks that the token endpoint returns 503 for valid requests, and never a client error.
func (s scene) wantsTokensUnavailable(t *testing.T) {
	t.Helper()
	wantsUnavailable(t, s.tokenRequests(t)...)
}

func (s scene) tokenRequests(t *testing.T) []func() harness.Answer {
	return []func() harness.Answer{
		func() harness.Answer { return s.connector.Refresh(t, s.tokens.RefreshToken) },
		func() harness.Answer { return s.attempt.Post(t, s.attempt.CodeForm(s.code)) },
		func() harness.Answer { return s.app.Exchange(t, s.app.Body(s.appCode)) },
	}
}

// byGateway is the gateway's message when a service is down, or has not responded for 28 s.
const byGateway = "The service is temporarily unavailable. Try again in a few seconds."

// wantsUnavailable checks the response of routes of authserver while a store does not respond. The requests wait for it
// at the same time.
func wantsUnavailable(t *testing.T, sends ...func() harness.Answer) {
	t.Helper()
	for _, answer := range harness.Concurrently(len(sends), func(i int) harness.Answer { return sends[i]() }) {
		if answer.WantsRetryAfter(t).
			WantsFlat(t, http.StatusServiceUnavailable, "temporarily_unavailable") == byGateway {
			t.Errorf("authserver has not responded:\n%s", answer)
		}
	}
}

// wantsListUnavailable checks the response of resourceapi while Postgres does not respond.
func wantsListUnavailable(t *testing.T, answer harness.Answer) {
	t.Helper()
	if answer.WantsRetryAfter(t).WantsNested(t, http.StatusServiceUnavailable, "UNAVAILABLE") == byGateway {
		t.Errorf("resourceapi has not responded:\n%s", answer)
	}
}

// wantsAPI checks that all three kinds of credentials list programmes.
func (s scene) wantsAPI(t *testing.T, p *harness.Product) {
	t.Helper()
	for _, token := range []string{s.ws.Token, s.tokens.AccessToken, s.long.AccessToken} {
		p.In(s.ws.Workspace, token).Get(t, programmes).Wants(t, http.StatusOK)
	}
}

// wantsEverythingAgain checks that the outage consumed nothing: codes, tokens and the page still work.
func (s scene) wantsEverythingAgain(t *testing.T, p *harness.Product) {
	t.Helper()
	s.wantsAPI(t, p)
	s.connector.WantsWorking(t, s.tokens)
	s.attempt.Post(t, s.attempt.CodeForm(s.code)).Tokens(t)
	s.app.Exchange(t, s.app.Body(s.appCode)).Tokens(t)
	s.page.Approve(t)
	if count := grantsOf(t, p, s.pageClient); count != 1 {
		t.Errorf("%d grants for one approval", count)
	}
	s.connector.WantsWorking(t, s.connector.Connect(t, p.Person(t, s.ws.Owner)))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
