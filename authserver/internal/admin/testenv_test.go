package admin_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// A testEnv is a workspace of the account API with the service of the administrator's commands, wired as for the
// command line.
type testEnv struct {
	*apitest.Server
	t         *testing.T
	service   *admin.Service
	workspace string // its id
	user      uuid.UUID
	app       client.Client
}

var commands = testkit.Once(func(t testing.TB) *admin.Service { return commandsOf(t, apitest.Shared(t)) })

// newTestEnv runs the test in parallel, with a new workspace of the service that the package's tests share.
func newTestEnv(t *testing.T) *testEnv {
	t.Helper()
	t.Parallel()
	return testEnvOf(t, apitest.Shared(t), commands(t))
}

// ownTestEnv is newTestEnv with a service and a database of its own, for commands about the whole database.
func ownTestEnv(t *testing.T) *testEnv {
	t.Helper()
	t.Parallel()
	s := apitest.Own(t)
	return testEnvOf(t, s, commandsOf(t, s))
}

func testEnvOf(t *testing.T, s *apitest.Server, service *admin.Service) *testEnv {
	t.Helper()
	b := &testEnv{Server: s, t: t, service: service, workspace: s.Fixture.WorkspaceID.String()}
	b.user = b.Fixture.Member(perm.ProgrammesRead)
	b.app = b.Fixture.Connector(apitest.MCP, perm.ProgrammesRead)
	return b
}

func commandsOf(t testing.TB, s *apitest.Server) *admin.Service {
	t.Helper()
	service, done, err := app.Admin(t.Context(), []string{
		"ALMONER_DATABASE_URL=" + s.Fixture.Database.Authserver,
		"ALMONER_REDIS_URL=" + s.Config.RedisURL.Reveal(),
		"ALMONER_KEYS=" + s.Keys.Reveal(),
		"ALMONER_BASE_URL=" + apitest.Issuer,
	}, slog.New(slog.NewTextHandler(s.Log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(done)
	return service
}

// person returns a new address.
func person() string { return "person-" + uuid.NewString()[:8] + "@example.org" }

func (b *testEnv) connected() apitest.Connection {
	b.t.Helper()
	return b.Connected(b.app, b.user)
}

// do runs a command that must succeed.
func (b *testEnv) do(c admin.Command) admin.Result {
	b.t.Helper()
	result, err := b.service.Run(b.t.Context(), c)
	if err != nil {
		b.t.Fatalf("%+v: %v", c, err)
	}
	return result
}

// printed decodes the JSON output of a command into out, and returns the text output.
func (b *testEnv) printed(result admin.Result, out any) string {
	b.t.Helper()
	var asJSON, asText bytes.Buffer
	b.Must(admin.Print(&asJSON, true, result))
	b.Must(admin.Print(&asText, false, result))
	if err := json.Unmarshal(asJSON.Bytes(), out); err != nil || strings.TrimSpace(asText.String()) == "" {
		b.t.Fatalf("%v: %s %s", err, asJSON.String(), asText.String())
	}
	return asText.String()
}

// values runs a command and returns the values of its outcome.
func (b *testEnv) values(c admin.Command) (values map[string]any) {
	b.t.Helper()
	b.printed(b.do(c), &values)
	return values
}

// wants runs a command and requires these values of its outcome, among others.
func (b *testEnv) wants(what string, c admin.Command, want map[string]any) {
	b.t.Helper()
	got := b.values(c)
	for name, value := range want {
		if got[name] != value {
			b.t.Errorf("%s: %s is %v, want %v (%+v)", what, name, got[name], value, c)
		}
	}
}

// list runs a command and returns the objects of its list.
func (b *testEnv) list(c admin.Command) (list []map[string]any) {
	b.t.Helper()
	text := b.printed(b.do(c), &list)
	if lines := strings.Count(text, "\n"); lines != len(list)+1 {
		b.t.Errorf("%d lines for %d rows and a heading", lines, len(list))
	}
	return list
}

// find returns the object of a list with a value, or nil.
func find(list []map[string]any, name string, value any) map[string]any {
	for _, one := range list {
		if one[name] == value {
			return one
		}
	}
	return nil
}

// refused requires that a command is refused with an error of the caller, not of the server.
func (b *testEnv) refused(what string, c admin.Command) {
	b.t.Helper()
	_, err := b.service.Run(b.t.Context(), c)
	b.refusal(what, err)
}

func (b *testEnv) allRefused(commands map[string]admin.Command) {
	b.t.Helper()
	for what, c := range commands {
		b.refused(what, c)
	}
}

func (b *testEnv) refusal(what string, err error) {
	b.t.Helper()
	var refusal *admin.Refusal
	if !errors.As(err, &refusal) || errors.Is(err, store.ErrUnavailable) || refusal.Message == "" ||
		strings.Contains(refusal.Message, "\n") {
		b.t.Errorf("%s: %v, want a refusal in one line", what, err)
	}
}

// events requires n events of the operator about a subject.
func (b *testEnv) events(action, subject string, n int) {
	b.t.Helper()
	b.WantsRows("events "+action, n, `account.audit_events where actor = 'admin' and action = $1 and subject = $2`,
		action, subject)
}

// text returns a text among the values of an outcome.
func (b *testEnv) text(values map[string]any, name string) string {
	b.t.Helper()
	text, ok := values[name].(string)
	if !ok {
		b.t.Fatalf("%s is missing in %v", name, values)
	}
	return text
}

// added adds a user with a new address.
func (b *testEnv) added() (id, email string) {
	b.t.Helper()
	email = person()
	return b.text(b.values(admin.AddUser{Email: email, Name: "Ada"}), "id"), email
}
