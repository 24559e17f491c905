package torture

import (
	"context"
	"crypto/rand"
	"net/url"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

// The recovery suites lose the primary and promote a streaming replica. Acknowledged changes must be there, unless
// deploy/docs/recovery.md says that they can be lost.

const takesMinutes = "it takes minutes"

// A recoveryStage is a product whose services know the addresses of a primary and of a standby.
type recoveryStage struct {
	*harness.Product
	running          *stack.Stack
	primary, standby *localstore.Postgres
}

func newRecoveryStage(t *testing.T) *recoveryStage {
	t.Helper()
	dir, err := localstore.TempDir("almoner-standby-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &recoveryStage{}
	t.Cleanup(func() { // after the search for secrets, which reads the promoted standby
		if s.standby != nil {
			s.standby.Stop()
			s.primary.Stop()
		}
	})
	s.running = harness.Private(t, harness.Options{Authservers: 2, Worker: true, StopsStores: true})
	s.primary = s.running.Postgres
	s.standby, err = localstore.StartReplica(t.Context(), s.primary, localstore.Options{Dir: dir, Volatile: true})
	must(t, err)
	refreshes := s.refreshRole(t)
	others := []*stack.Service{s.running.Resourceapi, s.running.Worker}
	for _, service := range append(others, s.running.Authservers...) {
		service.Set("ALMONER_DATABASE_URL", s.atBoth(t, service.Setting("ALMONER_DATABASE_URL")))
		if slices.Contains(s.running.Authservers, service) {
			service.Set("ALMONER_REFRESH_DATABASE_URL", s.atBoth(t, refreshes))
		}
		must(t, service.Restart(t.Context()))
	}
	s.running.DatabaseURL = s.atBoth(t, s.running.DatabaseURL)
	s.Product = harness.NewProduct(t, s.running, &seenSecrets)
	return s
}

// refreshRole creates a login for refreshes and returns its URL.
func (s *recoveryStage) refreshRole(t *testing.T) string {
	t.Helper()
	password := rand.Text()
	command(t, s.primary, "create role refreshes login password '"+password+"' in role almoner_authserver; "+
		"alter role refreshes set synchronous_commit = off")
	address, err := url.Parse(s.running.Authservers[0].Setting("ALMONER_DATABASE_URL"))
	must(t, err)
	address.User = url.UserPassword("refreshes", password)
	return address.String()
}

// refreshesUseTheirRole checks that the services have connected to the primary with the role for refreshes.
func (s *recoveryStage) refreshesUseTheirRole(t *testing.T) {
	t.Helper()
	if command(t, s.primary, "select count(*) > 0 from pg_stat_activity where usename = 'refreshes'") != "t" {
		t.Error("no connection uses the role for refreshes")
	}
}

// atBoth returns a URL of the database that names both servers and connects to the one that accepts writes.
func (s *recoveryStage) atBoth(t *testing.T, database string) string {
	t.Helper()
	address, err := url.Parse(database)
	must(t, err)
	standby, err := url.Parse(s.standby.URL)
	must(t, err)
	address.Host += "," + standby.Host
	query := address.Query()
	query.Set("target_session_attrs", "read-write")
	address.RawQuery = query.Encode()
	return address.String()
}

// command runs SQL as the superuser of one server and returns the first column of the first row as text, or "".
func command(t *testing.T, server *localstore.Postgres, sql string) string {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	connection, err := pgx.Connect(ctx, server.URL)
	must(t, err)
	defer func() { _ = connection.Close(ctx) }()
	results, err := connection.PgConn().Exec(ctx, sql).ReadAll()
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	if last := results[len(results)-1]; len(last.Rows) > 0 {
		return string(last.Rows[0][0])
	}
	return ""
}

// becomes waits until the first column of the first row is a value.
func becomes(t *testing.T, server *localstore.Postgres, sql, value string) {
	t.Helper()
	await.True(t, value+" = "+sql, func() bool { return command(t, server, sql) == value })
}

// configure changes a setting of a server and waits until it is in effect.
func configure(t *testing.T, server *localstore.Postgres, name, value string) {
	t.Helper()
	command(t, server, "alter system set "+name+" = '"+value+"'")
	command(t, server, "select pg_reload_conf()")
	becomes(t, server, "show "+name, value)
}

// A mode says whether commits wait for the standby.
type mode struct {
	name         string
	synchronized string // synchronous_standby_names
}

func modes() []mode { return []mode{{"asynchronous", ""}, {"synchronous", "*"}} }

// replicate waits until the standby follows the primary in the mode.
func (s *recoveryStage) replicate(t *testing.T, m mode) {
	t.Helper()
	becomes(t, s.primary, "select count(*) from pg_stat_replication where state = 'streaming'", "1")
	configure(t, s.primary, "synchronous_standby_names", m.synchronized)
	if m.synchronized != "" {
		becomes(t, s.primary, "select bool_and(sync_state in ('sync', 'quorum')) from pg_stat_replication", "t")
	}
}

// cutLine ends the replication, like a broken network.
func (s *recoveryStage) cutLine(t *testing.T) {
	t.Helper()
	configure(t, s.standby, "primary_conninfo", "")
	becomes(t, s.primary, "select count(*) from pg_stat_replication", "0")
}

// promote promotes the standby after the loss of the primary, and returns how long that took.
func (s *recoveryStage) promote(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	must(t, s.standby.Promote(context.WithoutCancel(t.Context())))
	s.primary, s.standby = s.standby, s.primary
	s.Database.Reconnect()
	return time.Since(began)
}

// rejoin makes the lost primary a standby of the promoted server.
func (s *recoveryStage) rejoin(t *testing.T) {
	t.Helper()
	must(t, s.standby.Follow(context.WithoutCancel(t.Context()), s.primary))
}

// A region is lost with its Postgres, its Redis and its services. Another region has a standby, the keys and an empty
// Redis. All data that the standby received works there, except codes that were not redeemed.
func TestRecovery_SecondRegionTakesOver(t *testing.T) {
	onlyLong(t, "recovery", takesMinutes)
	var outage time.Duration
	harness.Record(t, "Postgres, Redis and services killed, the standby promoted, services started with an empty "+
		"Redis; every kind of request succeeded within %s",
		harness.Deferred[time.Duration](func() time.Duration { return outage.Round(10 * time.Millisecond) }))
	s := newRecoveryStage(t)
	s.replicate(t, modes()[0])
	w := newWorkload(t, s.Product)
	d := newBaseline(t, w.site, func() {})
	s.waitForStandby(t)
	redis := harness.Servers(t, localstore.StartRedis) // another, empty one
	services := append([]*stack.Service{s.running.Resourceapi, s.running.Worker}, s.running.Authservers...)

	began := time.Now()
	s.primary.Kill()
	s.running.Redis.Kill()
	for _, service := range services {
		service.Kill()
	}
	s.promote(t)
	for _, service := range append(s.running.Authservers, services[:2]...) {
		service.Set("ALMONER_REDIS_URL", redis.URL)
		must(t, service.Restart(context.WithoutCancel(t.Context())))
	}
	w.waitForCalm(t)
	outage = time.Since(began)
	d.wantsKept(t)
}

// waitForStandby waits until the standby has received and applied everything.
func (s *recoveryStage) waitForStandby(t *testing.T) {
	t.Helper()
	becomes(t, s.primary, "select count(*) from pg_stat_replication where replay_lsn < pg_current_wal_lsn()", "0")
}
