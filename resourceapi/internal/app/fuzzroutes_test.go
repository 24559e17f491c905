package app

import (
	"context"
	"flag"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/devkit/fuzzkit"
)

// places returns paths of every kind; {id} is chosen by the input. New ones must be appended: stored inputs refer to
// them by number.
func places() []string {
	return []string{
		listPath,
		listPath + "/{id}",
		listPath + "/{id}/transitions",
		listPath + "/imports",
		listPath + "/imports/{id}",
		"<import>",
		formsPath,
		formsPath + "/{id}",
		formsPath + "/{id}/submissions",
		"<embed>",
		"<embed>/submissions",
		"<embed>/embed",
		"<submission>",
		publicPath + "/forms/{id}",
		publicPath + "/submissions/{id}",
		publicPath + "/{id}",
		mcpPath,
		"/mcp/{id}",
		"/.well-known/oauth-protected-resource{id}",
		"/v1/{id}",
		"/{id}",
		"/healthz",
		"/readyz",
		"/v1/me",
		"/v1/me/usage",
		"/v1/events",
		listPath + "/batch",
		listPath + "/transitions",
		listPath + "/external/{id}",
		"/v1/engage/submissions/{id}",
		"/v1/engage/supporters",
		"/v1/engage/supporters/{id}",
		webhooksPath,
		webhooksPath + "/{id}",
		webhooksPath + "/{id}/test",
		webhooksPath + "/{id}/deliveries",
		webhooksPath + "/{id}/deliveries/{id}/resend",
	}
}

func fuzzedMethods() []string {
	return []string{"GET", "POST", "PATCH", "DELETE", "HEAD", "OPTIONS", "PUT", "BREW"}
}

// FuzzRoutes checks any request to any route, with a credential or without: there must be no 5xx of our own, errors
// must have the shape of the route, and no credential may appear in the response or the log. The seeds must reach their
// routes: an input that is refused at the gate tests nothing.
func FuzzRoutes(f *testing.F) {
	statuses := map[routeSeed]int{}
	for _, seed := range routeSeeds() {
		place, method := slices.Index(places(), seed.place), slices.Index(fuzzedMethods(), seed.method)
		if place < 0 || place > math.MaxUint8 || method < 0 || seed.status == 0 {
			f.Fatalf("%s %s is not among places, or has no status", seed.method, seed.place)
		}
		f.Add(byte(place), byte(method), seed.id, seed.query, seed.headers, seed.body)
		status := seed.status
		seed.status = 0
		statuses[seed] = status
	}
	if len(statuses) != len(routeSeeds()) {
		f.Fatal("two seeds are equal")
	}
	fuzzing := flag.Lookup("test.fuzz").Value.String() != ""
	selected := strings.Contains(flag.Lookup("test.run").Value.String(), "/") // -run of some seeds
	compared := map[routeSeed]bool{}
	s := newFuzzed(f)
	f.Fuzz(func(t *testing.T, place, method byte, id, query, headers, body string) {
		seed := routeSeed{
			method:  fuzzedMethods()[int(method)%len(fuzzedMethods())],
			place:   places()[int(place)%len(places())],
			id:      id,
			query:   query,
			headers: headers,
			body:    body,
		}
		answer := s.ask(t, seed)
		want, isSeed := statuses[seed]
		if !isSeed || fuzzing {
			return
		}
		compared[seed] = true
		if answer.Status != want {
			t.Errorf("%+v: %d %s, want %d", seed, answer.Status, answer.Refusal(), want)
		}
	})
	if !fuzzing && !selected && len(compared) != len(statuses) {
		f.Errorf("the statuses of %d of %d seeds were compared", len(compared), len(statuses))
	}
}

func (s *fuzzed) ask(t *testing.T, seed routeSeed) fuzzkit.Answer {
	s.renew()
	order := s.stock().NewValues()
	request := fuzzkit.Request{
		Method:  seed.method,
		Path:    order.FillPublic(strings.ReplaceAll(seed.place, "{id}", seed.id)),
		Query:   order.FillPublic(seed.query),
		Headers: order.Fill(seed.headers),
		From:    s.from.Next(),
	}
	shown := order.Secrets() // only the server may see them; a form may return its own token
	request.Body = order.Fill(seed.body)
	r, ok := request.Read()
	if !ok {
		return fuzzkit.Answer{}
	}
	s.log.Take()
	answer := fuzzkit.Ask(s.app.Handler, r)
	logged := s.log.Take()
	if answer.Status >= http.StatusInternalServerError {
		t.Errorf("%d %s\n%s", answer.Status, answer.Body, logged)
	}
	if !strings.Contains(logged, `"msg":"request"`) || strings.Contains(logged, `"msg":"panic"`) {
		t.Errorf("the log of the request: %s", logged)
	}
	if fuzzkit.Repeats(logged, order.Secrets()) || fuzzkit.Repeats(answer.Body, shown) {
		t.Errorf("%d: the response or the log contains a credential", answer.Status)
	}
	if answer.Header.Get("X-Request-Id") == "" || answer.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%v", answer.Header)
	}
	if answer.Status >= http.StatusBadRequest {
		checkRefusal(t, r, answer)
	} else if seed.method == http.MethodPatch || strings.HasSuffix(r.URL.Path, "/transitions") {
		s.spoil()
	}
	if answer.Status == http.StatusAccepted {
		if err := s.process(); err != nil {
			t.Error(err)
		}
	}
	return answer
}

// checkRefusal checks the error shape of the route (spec 7.1, contract section 6).
func checkRefusal(t *testing.T, r *http.Request, answer fuzzkit.Answer) {
	t.Helper()
	path, code := r.URL.EscapedPath(), answer.Code()
	right := code != "" && code == map[int]string{
		400: "VALIDATION_ERROR", 401: "UNAUTHENTICATED", 403: "FORBIDDEN", 404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED",
		409: "CONFLICT", 412: "PRECONDITION_FAILED", 413: "PAYLOAD_TOO_LARGE", 429: "RATE_LIMITED",
		422: "QUERY_TOO_EXPENSIVE", // a search on a busy machine
	}[answer.Status]
	if path == mcpPath && code == "" {
		inner, _ := answer.Object()["error"].(map[string]any)
		_, right = inner["code"].(float64)
	}
	if isForPeople(path) && answer.Status != http.StatusMethodNotAllowed {
		right = answer.IsPage()
	}
	if !right {
		t.Errorf("%s %s: %d %s does not have the shape of its route", r.Method, path, answer.Status, answer.Body)
	}
	for status, header := range map[int]string{401: "WWW-Authenticate", 405: "Allow", 429: "Retry-After"} {
		if answer.Status == status && answer.Header.Get(header) == "" {
			t.Errorf("%s %s: %d without %s", r.Method, path, status, header)
		}
	}
}

// isForPeople reports whether the path is a form's page.
func isForPeople(path string) bool {
	key, isPage := strings.CutSuffix(path, "/embed")
	key, isForm := strings.CutPrefix(key, publicPath+"/forms/")
	return isPage && isForm && key != "" && !strings.Contains(key, "/")
}

// A fuzzed is a service with a workspace that has everything that inputs can refer to. It is called without a listener.
type fuzzed struct {
	*service
	from fuzzkit.Addresses
	cast cast
	left int // inputs until the next cast
}

// A cast is a workspace with a member who has every permission.
type cast struct {
	workspaceID, programme uuid.UUID
	pat, access, assistant string
	form                   formRecord
	submission             sentSubmission
	importPath, cursor     string
}

// inputsPerCast limits the length of lists, and the submissions to a form, which are rate limited.
const inputsPerCast = 200

func newFuzzed(t testing.TB) *fuzzed {
	t.Helper()
	return &fuzzed{service: ownService(fuzzkit.Outside(t), func(c *Config) { c.Proxies = fuzzkit.Proxy })}
}

// renew creates a new cast if the old one was used often or was changed.
func (s *fuzzed) renew() {
	if s.left--; s.left > 0 {
		return
	}
	s.left = inputsPerCast
	everything := perm.ForConnectors()
	c := cast{workspaceID: s.Workspace()}
	user := s.User()
	s.Member(c.workspaceID, user, everything...)
	c.programme = s.Programmes(c.workspaceID, 3)[0]
	c.pat = s.PAT(c.workspaceID, user, everything...).Reveal()
	c.access = s.token(claims(s.Grant(standing.Confidential, c.workspaceID, user, resource, everything...)))
	c.assistant = s.token(claims(s.Grant(standing.Connector, c.workspaceID, user, mcpResource, everything...)))
	s.get(listPath, as(c.access, c.workspaceID)).wants(s.t, 200) // fetches the keys of access tokens
	h := as(c.pat, c.workspaceID).json()
	c.form = s.makeForm(h, allTypes)
	c.submission = s.accepted(c.form)
	c.importPath = s.importCSV(h, "name\nx\n")
	c.cursor = s.page(h, "?limit=1").Meta.NextCursor
	s.cast = c
}

// spoil marks the cast as changed: the next input gets a new one.
func (s *fuzzed) spoil() { s.left = 0 }

// submissionToken returns a token of a page opened a minute ago, as by a user.
func (s *fuzzed) submissionToken() string {
	return s.tokens.ForSubmission(s.cast.form.ID, time.Now().Add(-time.Minute))
}

// stock returns the values of the words in inputs.
func (s *fuzzed) stock() fuzzkit.Placeholders {
	submission, _, _ := strings.Cut(strings.TrimPrefix(s.cast.submission.StatusURL, base), "?")
	_, status, _ := strings.Cut(s.cast.submission.StatusURL, "?token=")
	say := func(text string) func() string { return func() string { return text } }
	return fuzzkit.Placeholders{
		Public: map[string]func() string{
			"tenant":     s.cast.workspaceID.String,
			"programme":  s.cast.programme.String,
			"form":       s.cast.form.ID.String,
			"embed":      say(s.cast.form.path()),
			"import":     say(s.cast.importPath),
			"submission": say(submission),
			"cursor":     say(s.cast.cursor),
			"fresh":      uuid.NewString,
		},
		Secret: map[string]func() string{
			"pat":       say(s.cast.pat),
			"access":    say(s.cast.access),
			"assistant": say(s.cast.assistant),
			"status":    say(status),
			"sending":   s.submissionToken,
		},
	}
}

// process processes the waiting imports, like the service's own worker.
func (s *fuzzed) process() error {
	for {
		found, err := s.app.store.ProcessImport(context.Background())
		if err != nil {
			return fmt.Errorf("process an import: %w", err)
		}
		if !found {
			return nil
		}
	}
}
