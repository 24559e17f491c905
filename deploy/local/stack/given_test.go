package stack

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/deploy/local/demo"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// givenDatabase creates an empty database in the tests' server, for a user who may or may not create roles.
func givenDatabase(t *testing.T, mayCreateRoles bool) string {
	t.Helper()
	db := testkit.NewDatabase(t)
	name := fmt.Sprintf("given_%d", time.Now().UnixNano())
	option := "nocreaterole"
	if mayCreateRoles {
		option = "createrole"
	}
	execute(t, db.Superuser, "create role "+name+" login password 'given' "+option)
	if mayCreateRoles { // as if the user had created the group roles
		execute(t, db.Superuser, "grant almoner_authserver, almoner_resourceapi to "+name+" with admin option")
	}
	execute(t, db.Superuser, "create database "+name+" owner "+name)
	t.Cleanup(func() {
		execute(t, db.Superuser, "drop database "+name+" with (force)")
		execute(t, db.Superuser, "drop role "+name)
	})
	url, err := withLogin(db.Superuser, name, "given", name)
	must(t, err)
	return url
}

func execute(t *testing.T, url, sql string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	db, err := pgx.Connect(ctx, url)
	must(t, err)
	defer func() { _ = db.Close(ctx) }()
	if _, err := db.Exec(ctx, sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func TestStart_UsesGivenStores(t *testing.T) {
	t.Parallel()
	options := optionsFor(t, newHome(t))
	options.DatabaseURL, options.RedisURL = givenDatabase(t, true), testkit.NewRedis(t).URL
	s := start(t, options)
	if s.Postgres != nil || s.Redis != nil {
		t.Error("a private store was started")
	}
	if status, body := listProgrammes(t, s); status != http.StatusOK {
		t.Errorf("%d %.200s", status, body)
	}
	for _, service := range []string{authserver, resourceapi} {
		if url := s.logins[service]; url == options.DatabaseURL || !strings.Contains(url, "_"+service+":") {
			t.Errorf("%s does not connect as its own role", service)
		}
	}
	s.Stop()
	again := start(t, options)
	if again.Demo.Users != s.Demo.Users || again.Demo.Clients.Confidential != s.Demo.Clients.Confidential ||
		again.Demo.Clients.Service != s.Demo.Clients.Service {
		t.Error("the second start has other demo data")
	}
	again.Stop()
	t.Cleanup(func() { dropLogins(t, again) })
}

// dropLogins removes an installation's roles from the tests' server after its database is dropped.
func dropLogins(t *testing.T, s *Stack) {
	for _, service := range []string{authserver, resourceapi} {
		execute(t, testkit.NewDatabase(t).Superuser, "drop role almoner_"+s.home.seed.Fingerprint()[:8]+"_"+service)
	}
}

func TestStart_RefusesForeignDatabase(t *testing.T) {
	t.Parallel()
	options := optionsFor(t, newHome(t))
	options.DatabaseURL, options.RedisURL = testkit.NewDatabase(t).Owner, testkit.NewRedis(t).URL
	_, err := Start(t.Context(), options)
	if !errors.Is(err, demo.ErrForeign) || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
}

func TestStart_NamesMissingDatabaseRight(t *testing.T) {
	t.Parallel()
	options := optionsFor(t, newHome(t))
	options.DatabaseURL, options.RedisURL = givenDatabase(t, false), testkit.NewRedis(t).URL
	if _, err := Start(t.Context(), options); err == nil || !strings.Contains(err.Error(), "may not create roles") {
		t.Errorf("got %v", err)
	}
}

func TestStart_UnreachableDatabaseHidesPassword(t *testing.T) {
	t.Parallel()
	options := optionsFor(t, newHome(t))
	options.DatabaseURL, options.RedisURL = "postgres://u:verysecret@127.0.0.1:1/x", "redis://127.0.0.1:1/0"
	_, err := Start(t.Context(), options)
	if err == nil || !strings.Contains(err.Error(), "cannot connect") || strings.Contains(err.Error(), "verysecret") {
		t.Errorf("got %v", err)
	}
}
