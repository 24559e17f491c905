package runbooks

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

// PostgreSQL moves to a server without a superuser for us, where the owner has another name. Nothing fails except
// during the pause.
func TestPostgres_MovesToNewServer(t *testing.T) {
	t.Parallel()
	o := newOperator(t, harness.Options{})
	ws := o.NewWorkspace(t)
	connector, owner := ws.Connector(t, harness.ReadProgrammes), o.Person(t, ws.Owner)
	tokens, revoked := connector.Connect(t, owner), connector.Connect(t, owner)
	connector.Revoke(t, revoked.RefreshToken)
	token := o.Database.Token(t, ws.Workspace, ws.Owner, harness.ReadProgrammes)

	o.stopServices()
	o.run(t, "backup.md", "dump")
	o.buy(t)
	o.run(t, "postgres-move.md", "fill")
	o.run(t, "postgres-move.md", "filled")
	o.run(t, "postgres-move.md", "new-host")
	for _, service := range []string{"authserver", "resourceapi"} {
		o.run(t, "store-passwords.md", "database-login", "SERVICE="+service, "BY=almoner")
	}
	o.running.Postgres.Stop() // the old server
	o.startServices(t)
	o.run(t, "postgres-move.md", "moved")
	connector.WantsWorking(t, tokens)
	connector.WantsRevoked(t, revoked)
	o.In(ws.Workspace, token).Get(t, harness.ListPath).Wants(t, http.StatusOK)
}

// buy does what an operator does in a provider's console: it creates a server with an empty database and an owner who
// may create roles. It writes them to the files.
func (o *operator) buy(t *testing.T) {
	t.Helper()
	bought, _ := o.newServer(t)
	address := o.address(t, bought)
	provider, err := pgx.Connect(t.Context(), address.String())
	must(t, err)
	defer func() { _ = provider.Close(t.Context()) }()
	const password = "ofthenewowner"
	for _, sql := range []string{
		"create role tenant1234 login createrole password '" + password + "'",
		"create database bought owner tenant1234",
	} {
		_, err := provider.Exec(t.Context(), sql)
		must(t, err)
	}
	owner := *address
	owner.User, owner.Path = url.UserPassword("tenant1234", password), "/bought"
	o.writeServices(t, map[string]*url.URL{"almoner": &owner})
	must(t, os.WriteFile(filepath.Join(o.secrets, "owner-database-url"), []byte(owner.String()+"\n"), 0o600))
}

// newServer starts another, empty PostgreSQL and returns its superuser's URL and its log.
func (o *operator) newServer(t *testing.T) (url, log string) {
	t.Helper()
	dir, err := localstore.TempDir("almoner-runbooks-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	server, err := localstore.StartPostgres(t.Context(),
		localstore.Options{Dir: dir, Tools: os.Getenv("ALMONER_TEST_TOOLS"), Volatile: true})
	must(t, err)
	t.Cleanup(server.Stop)
	return server.URL, filepath.Join(dir, "postgres.log")
}
