package admin_test

import (
	"bytes"
	"context"
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
	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// A testEnv is the account API with the service of the administrator's commands, wired as for the command line.
type testEnv struct {
	*apitest.Server
	t       *testing.T
	service *admin.Service
	user    uuid.UUID
	app     client.Client
}

func newTestEnv(t *testing.T) *testEnv {
	t.Helper()
	b := &testEnv{Server: apitest.Own(t), t: t}
	service, done, err := app.Admin(t.Context(), []string{
		"ALMONER_DATABASE_URL=" + b.Fixture.Database.Authserver,
		"ALMONER_REDIS_URL=" + b.Config.RedisURL.Reveal(),
		"ALMONER_KEYS=" + b.Keys.Reveal(),
		"ALMONER_BASE_URL=" + apitest.Issuer,
	}, slog.New(slog.NewTextHandler(b.Log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(done)
	b.service = service
	b.user = b.Fixture.Member(perm.ProgrammesRead)
	b.app = b.Fixture.Connector(apitest.MCP, perm.ProgrammesRead)
	return b
}

func (b *testEnv) do(ctx context.Context, c admin.Command) (admin.Result, error) {
	return b.service.Run(ctx, c)
}

// endRest ends the grants that a request left to the background, as the service does.
func (b *testEnv) endRest() {
	b.t.Helper()
	database := credential.Secret(b.Fixture.Database.Authserver)
	store, err := postgres.Open(b.t.Context(), postgres.Only(database), testkit.StoreWait)
	if err != nil {
		b.t.Fatal(err)
	}
	defer store.Close()
	for left := true; left; {
		if _, left, err = store.EndNext(b.t.Context()); err != nil {
			b.t.Fatal(err)
		}
	}
}

// values returns the values of an outcome, or the objects of a list as "list".
func (b *testEnv) values(result admin.Result, err error) map[string]any {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
	var asJSON, asText bytes.Buffer
	for buffer, isJSON := range map[*bytes.Buffer]bool{&asJSON: true, &asText: false} {
		if err := admin.Print(buffer, isJSON, result); err != nil {
			b.t.Fatal(err)
		}
	}
	if strings.TrimSpace(asText.String()) == "" {
		b.t.Error("the text output is empty")
	}
	out := map[string]any{}
	if err := json.Unmarshal(asJSON.Bytes(), &out); err == nil {
		return out
	}
	var list []any
	if err := json.Unmarshal(asJSON.Bytes(), &list); err != nil {
		b.t.Fatalf("%v: %s", err, asJSON.String())
	}
	if lines := strings.Count(asText.String(), "\n"); lines != len(list)+1 {
		b.t.Errorf("%d lines for %d rows and a heading", lines, len(list))
	}
	return map[string]any{"list": list}
}

func (b *testEnv) list(result admin.Result, err error) []map[string]any {
	b.t.Helper()
	all, _ := b.values(result, err)["list"].([]any)
	out := make([]map[string]any, len(all))
	for i, one := range all {
		out[i], _ = one.(map[string]any)
	}
	return out
}

// refused requires an error of the caller, not of the server.
func (b *testEnv) refused(what string, result admin.Result, err error) {
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
	const query = `select count(*) from account.audit_events
		where actor = 'admin' and action = $1 and subject = $2`
	if got := b.Count(query, action, subject); got != n {
		b.t.Errorf("%d events %s of %s, want %d", got, action, subject, n)
	}
}

func (b *testEnv) text(values map[string]any, name string) string {
	b.t.Helper()
	text, ok := values[name].(string)
	if !ok {
		b.t.Fatalf("%s is missing in %v", name, values)
	}
	return text
}
