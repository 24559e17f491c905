package e2e

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/deploy/local/gateway"
	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
)

// During an upgrade the schema is already new, and old and new processes serve requests in turn (deploy/UPGRADING.md).
func TestEarlierPrograms_WorkOnNewSchema(t *testing.T) {
	t.Parallel()
	earlier := harness.Earlier(t, harness.PreviousRelease())
	s := harness.Private(t, harness.Options{Authservers: 2, Resources: 2, EarlierBinaries: earlier})
	use := func(i int) *harness.Product {
		return harness.NewProductWithTransport(t, s, &met, through{s, s.Authservers[i], s.Resources[i]})
	}
	current, former := use(0), use(1)
	current.Database.Exec(t, `delete from account.finished_upgrades`) // an upgraded installation has no row
	for name, c := range map[string]struct{ first, then *harness.Product }{
		"new, then earlier": {current, former},
		"earlier, then new": {former, current},
	} {
		t.Run(name, func(t *testing.T) {
			first, then := c.first.DemoConnector(), c.then.DemoConnector()
			attempt := first.Begin()
			code := attempt.Code(t, c.first.Person(t, c.first.Demo.Users.Owner)) // sign-in and consent
			tokens := then.Post(t, attempt.CodeForm(code)).Tokens(t)
			for _, p := range []*harness.Product{c.then, c.first} {
				readsProgrammes(t, p, tokens)
			}
			next := first.Refresh(t, tokens.RefreshToken).Tokens(t)
			last := then.Refresh(t, next.RefreshToken).Tokens(t)
			for _, p := range []*harness.Product{c.first, c.then} {
				readsProgrammes(t, p, last)
			}
			// A replay at one process revokes the grant for both.
			first.Refresh(t, tokens.RefreshToken).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
			then.Refresh(t, last.RefreshToken).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
			for _, p := range []*harness.Product{c.then, c.first} {
				seen := p.DemoService().Introspect(t, last.AccessToken).Wants(t, http.StatusOK).Object(t)
				if active := seen["active"]; active != false {
					t.Errorf("active is %v after the replay", active)
				}
			}
			// A submission that one process accepts is processed by either.
			status := formOf(c.first).accepted(t)
			if end := formOf(c.then).ends(t, status); end != "processed" {
				t.Errorf("the submission's status is %s", end)
			}
		})
	}
}

// After `migrate --finish`, new codes and refresh tokens contain their workspace. Earlier ones stay valid.
func TestFinish_EarlierTokensStayValid(t *testing.T) {
	t.Parallel()
	s := harness.Private(t, harness.Options{})
	p := harness.NewProduct(t, s, &met)
	p.Database.Exec(t, `delete from account.finished_upgrades`)
	connector, owner := p.DemoConnector(), p.Person(t, p.Demo.Users.Owner)
	earlier := connector.Connect(t, owner)
	attempt := connector.Begin()
	code := attempt.Code(t, owner)
	for range 2 { // it is safe to repeat
		must(t, s.Migrate(t.Context(), "authserver", filepath.Dir(harness.Program(t, "authserver")), "--finish"))
	}
	connector.WantsWorking(t, attempt.Post(t, attempt.CodeForm(code)).Tokens(t))
	next := connector.Refresh(t, earlier.RefreshToken).Tokens(t)
	connector.WantsWorking(t, next)
	connector.Refresh(t, earlier.RefreshToken).WantsFlat(t, http.StatusBadRequest, "invalid_grant") // a replay
	connector.Refresh(t, next.RefreshToken).WantsFlat(t, http.StatusBadRequest, "invalid_grant")

	later := connector.Connect(t, owner)
	if len(later.RefreshToken) <= len(earlier.RefreshToken) {
		t.Error("a refresh token does not contain its workspace")
	}
	connector.WantsWorking(t, connector.Refresh(t, later.RefreshToken).Tokens(t))
}

// Without a migration between the two commits, the test above would prove nothing.
func TestEarlierPrograms_PrecedeNewestMigrations(t *testing.T) {
	t.Parallel()
	earlier, newer := harness.PreviousRelease(), false
	for _, service := range []string{"authserver", "resourceapi"} {
		folder := service + "/internal/store/postgres/migrations"
		all, err := filepath.Glob(filepath.Join("..", folder, "*.sql"))
		must(t, err)
		if len(all) == 0 {
			t.Fatalf("%s has no migrations", service)
		}
		newest := filepath.Base(slices.Max(all))
		_, err = os.Stat(filepath.Join(harness.CommittedFolder(t, earlier, folder), newest))
		newer = newer || err != nil
	}
	if !newer {
		t.Errorf("commit %.10s has the newest migrations: set previousRelease to a commit before them", earlier)
	}
}

func readsProgrammes(t *testing.T, p *harness.Product, tokens harness.Tokens) {
	t.Helper()
	p.API().With("X-Tenant-Id", tokens.WorkspaceID).With("Authorization", "Bearer "+tokens.AccessToken).
		Get(t, programmes).
		Wants(t, http.StatusOK)
	seen := p.DemoService().Introspect(t, tokens.AccessToken).Wants(t, http.StatusOK).Object(t)
	if active := seen["active"]; active != true {
		t.Errorf("active is %v", active)
	}
}

// through sends every request directly to one process of each service, without the gateway. The URL decides which.
type through struct {
	Stack                   *stack.Stack
	Authserver, Resourceapi *stack.Service
}

// RoundTrip implements http.RoundTripper.
func (t through) RoundTrip(r *http.Request) (*http.Response, error) {
	service := t.Resourceapi
	if strings.HasPrefix(r.URL.String(), t.Stack.AppURL+"/") || gateway.IsAccount(r.URL.Path) {
		service = t.Authserver
	}
	address, err := url.Parse(service.URL)
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Host = r.URL.Host
	r.URL.Host = address.Host
	return http.DefaultTransport.RoundTrip(r)
}
