package runbooks

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/localstore"
)

// PostgreSQL moves to a server where nobody is a superuser for us, and the owner has another name. Nobody notices but for the pause.
func TestPostgresMoves(t *testing.T) {
	t.Parallel()
	o := newOperator(t, harness.Options{})
	office := o.Office(t)
	connector, head := office.Connector(t, harness.ReadProgrammes), o.Person(t, office.Head)
	tokens, revoked := connector.Connect(t, head), connector.Connect(t, head)
	connector.Revoke(t, revoked.RefreshToken)
	token := o.World.Token(t, office.Tenant, office.Head, harness.ReadProgrammes)

	o.stopServices()
	o.run(t, "backup.md", "dump")
	o.buy(t)
	o.run(t, "postgres-move.md", "fill")
	o.run(t, "postgres-move.md", "new-host")
	for _, service := range []string{"authserver", "resourceapi"} {
		o.run(t, "keys.md", "database-login", "SERVICE="+service, "BY=almoner")
	}
	o.running.Postgres.Stop() // the old one
	o.startServices(t)
	o.run(t, "postgres-move.md", "moved")
	connector.WantsAlive(t, tokens)
	connector.WantsDead(t, revoked)
	o.In(office.Tenant, token).Get(t, harness.ListPath).Wants(t, http.StatusOK)
}

// buy is what one does in a provider's console: a server with an empty database, and an owner who may create roles. It goes into the files.
func (o *operator) buy(t *testing.T) {
	t.Helper()
	dir, err := localstore.TempDir("almoner-runbooks-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	server, err := localstore.StartPostgres(t.Context(), localstore.Options{Dir: dir, Tools: os.Getenv("ALMONER_TEST_TOOLS"), Volatile: true})
	must(t, err)
	t.Cleanup(server.Stop)
	provider, err := pgx.Connect(t.Context(), server.URL)
	must(t, err)
	defer func() { _ = provider.Close(t.Context()) }()
	const password = "ofthenewowner"
	for _, sql := range []string{"create role tenant1234 login createrole password '" + password + "'", "create database bought owner tenant1234"} {
		_, err := provider.Exec(t.Context(), sql)
		must(t, err)
	}
	address := o.address(t, server.URL)
	host, port := address.Hostname(), address.Port()
	for name, content := range map[string]string{
		"pg_service.conf": "[almoner]\nhost=" + host + "\nport=" + port + "\ndbname=bought\nuser=tenant1234\n",
		"pgpass":          strings.Join([]string{host, port, "*", "tenant1234", password}, ":") + "\n",
	} {
		must(t, os.WriteFile(filepath.Join(o.etc, name), []byte(content), 0o600))
	}
	owner := "postgres://tenant1234:" + password + "@" + address.Host + "/bought?sslmode=disable\n"
	must(t, os.WriteFile(filepath.Join(o.secrets, "owner-database-url"), []byte(owner), 0o600))
}
