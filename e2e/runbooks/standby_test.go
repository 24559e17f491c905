package runbooks

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

// A synchronous standby is set up and promoted after the region of the primary is lost, with Redis. The standby has
// everything that the primary acknowledged. `make torture PART=recovery` measures the same under load.
func TestStandby_TakesOverInSecondRegion(t *testing.T) {
	t.Parallel()
	o := newOperator(t, harness.Options{})
	ctx := context.WithoutCancel(t.Context())
	ws := o.NewWorkspace(t)
	connector, owner := ws.Connector(t, harness.ReadProgrammes), o.Person(t, ws.Owner)
	standby := o.addStandby(t)

	o.run(t, recovery, "synchronous")
	o.wantsStandby(t, "quorum")
	tokens, revoked, late := connector.Connect(t, owner), connector.Connect(t, owner), connector.Connect(t, owner)
	connector.Revoke(t, revoked.RefreshToken).Wants(t, http.StatusOK)
	must(t, standby.Pause())
	connector.Revoke(t, late.RefreshToken).Wants(t, http.StatusServiceUnavailable)
	o.run(t, recovery, "asynchronous")
	connector.Revoke(t, late.RefreshToken).Wants(t, http.StatusOK)
	standby.Resume()
	o.wantsStandby(t, "async")

	o.running.Postgres.Kill()
	o.running.Redis.Kill()
	o.stopServices()
	o.run(t, recovery, "promote", "PGDATA="+filepath.Join(o.standbyDir(), "data"))
	must(t, o.running.Redis.Forget()) // the second region's Redis
	must(t, o.running.Redis.Restart(ctx))
	if output := o.run(t, recovery, "redis-empty"); output != "PONG\n0\n" {
		t.Errorf("Redis: %s", output)
	}
	host := o.address(t, standby.URL).Host
	for _, service := range []string{"authserver", "resourceapi"} {
		name := service + "-database-url"
		both := o.address(t, o.readSecret(t, name))
		both.Host += "," + host
		query := both.Query()
		query.Set("target_session_attrs", "read-write")
		both.RawQuery = query.Encode()
		o.writeSecret(t, name, both.String())
	}
	o.startServices(t)
	if output := o.run(t, recovery, "ready"); !strings.Contains(output, `"postgres":"ok"`) {
		t.Errorf("ready: %s", output)
	}
	connector.WantsWorking(t, tokens)
	connector.WantsRevoked(t, revoked)
}

func (o *operator) standbyDir() string { return filepath.Join(o.backups, "standby") }

// addStandby sets up a standby as the page says and starts it.
func (o *operator) addStandby(t *testing.T) *localstore.Postgres {
	t.Helper()
	const password = "ofthestandby"
	met.AddAll(password)
	authority := o.encryptConnections(t)
	primary, dir := o.address(t, o.running.Postgres.URL), o.standbyDir()
	o.runWithInput(t, recovery, "replication-role", strings.Repeat(password+"\n", 2), "STANDBYS=127.0.0.1/32")
	file, err := os.OpenFile(filepath.Join(o.etc, passwordsOfPostgres), os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	_, err = fmt.Fprintf(file, "localhost:%s:*:almoner_replica:%s\n", primary.Port(), password)
	must(t, err)
	must(t, file.Close())
	must(t, os.Mkdir(dir, 0o700))
	o.chown(t, *o.postgresUser(t), dir)
	o.run(t, recovery, "base-backup", "PGDATA="+filepath.Join(dir, "data"), "PRIMARY=localhost",
		"PGPORT="+primary.Port(), "PGSSLROOTCERT="+authority)
	superuser, _ := primary.User.Password()
	must(t, os.WriteFile(filepath.Join(dir, "superuser"), []byte(superuser+"\n"), 0o600))
	standby, err := localstore.StartPostgres(t.Context(),
		localstore.Options{Dir: dir, Tools: os.Getenv("ALMONER_TEST_TOOLS"), Volatile: true})
	must(t, err)
	t.Cleanup(standby.Stop)
	o.wantsStandby(t, "async")
	return standby
}

// wantsStandby waits until the primary shows the standby in this state of synchronization, with everything applied.
func (o *operator) wantsStandby(t *testing.T, state string) {
	t.Helper()
	const sql = `select coalesce((select sync_state from pg_stat_replication where application_name = 'b'
		and state = 'streaming' and replay_lsn = pg_current_wal_lsn()), '')`
	primary := connect(t, o.running.Postgres.URL)
	await.True(t, "the standby is "+state, func() bool {
		var found string
		must(t, primary.QueryRow(t.Context(), sql).Scan(&found))
		return found == state
	})
}

// encryptConnections gives the primary a certificate for localhost and returns the file of its authority.
func (o *operator) encryptConnections(t *testing.T) (authority string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		DNSNames:     []string{"localhost"},
		NotAfter:     time.Now().Add(time.Hour),
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	authority = filepath.Join(o.data(), "server.crt")
	for path, block := range map[string]*pem.Block{
		authority:                             {Type: "CERTIFICATE", Bytes: certificate},
		filepath.Join(o.data(), "server.key"): {Type: "PRIVATE KEY", Bytes: private},
	} {
		must(t, os.WriteFile(path, pem.EncodeToMemory(block), 0o600))
		o.chown(t, *o.postgresUser(t), path)
	}
	execute(t, connect(t, o.running.Postgres.URL), "alter system set ssl = on", "select pg_reload_conf()")
	return authority
}
