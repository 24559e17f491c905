package stack

import (
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

// checkRights returns a clear error early instead of a SQL error later.
func checkRights(ctx context.Context, owner *pgx.Conn) error {
	var user, database string
	var roles, schemas bool
	query := owner.QueryRow(ctx, `select current_user, current_database(), rolsuper or rolcreaterole,
			has_database_privilege(current_database(), 'create') from pg_roles where rolname = current_user`)
	err := query.Scan(&user, &database, &roles, &schemas)
	if err != nil {
		return fmt.Errorf("read the database user's rights: %w", err)
	}
	if !roles {
		return fmt.Errorf("the database user %s may not create roles, which is needed to create one for each service: "+
			"run as a superuser: alter role %s createrole", user, pgx.Identifier{user}.Sanitize())
	}
	if !schemas {
		return fmt.Errorf("the database user %s may not create schemas in %s: use a database that the user owns", user,
			database)
	}
	return nil
}

// loginFor creates the role as which a service of this installation connects, a member of the service's group role,
// which the migrations create. It returns the service's URL.
func (s *Stack) loginFor(ctx context.Context, owner *pgx.Conn, ownerURL, service string) (string, error) {
	// A server may hold several installations, so the name contains the fingerprint.
	role := "almoner_" + s.home.seed.Fingerprint()[:8] + "_" + service
	password := s.home.seed.Hex("database " + service)
	if err := ensureRole(ctx, owner, role, password, ""); err != nil {
		return "", err
	}
	group := pgx.Identifier{"almoner_" + service}.Sanitize()
	if _, err := owner.Exec(ctx, "grant "+group+" to "+pgx.Identifier{role}.Sanitize()); err != nil {
		return "", fmt.Errorf(
			"the database user may not grant the role %s, which another user created: use that user or a superuser: %w",
			group, err)
	}
	serviceURL, err := withLogin(ownerURL, role, password, "")
	if err != nil {
		return "", err
	}
	probe, err := pgx.Connect(ctx, serviceURL)
	if err != nil {
		return "", fmt.Errorf("the role %s of %s cannot connect to the database: %w", role, service, withoutURL(err))
	}
	return serviceURL, probe.Close(ctx)
}

// ensureRole creates a role that can log in, or sets its password. The server gets a SCRAM verifier instead of the
// password, which it might log.
func ensureRole(ctx context.Context, db *pgx.Conn, role, password, options string) error {
	verifier, err := scramVerifier(password)
	if err != nil {
		return err
	}
	name := pgx.Identifier{role}.Sanitize()
	_, err = db.Exec(ctx, "create role "+name)
	if fault, ok := errors.AsType[*pgconn.PgError](err); err != nil &&
		(!ok || fault.Code != "42710") { // duplicate_object
		return fmt.Errorf("create the database role %s: %w", role, err)
	}
	if _, err := db.Exec(ctx, "alter role "+name+" login "+options+" password '"+verifier+"'"); err != nil {
		return fmt.Errorf("create the database role %s: %w", role, err)
	}
	return nil
}

// scramVerifier returns the form in which PostgreSQL stores a password (RFC 5803): base64 and a few symbols, which need
// no quoting.
func scramVerifier(password string) (string, error) {
	const iterations = 4096 // PostgreSQL's default
	salt := make([]byte, 16)
	_, _ = rand.Read(salt) // never fails (crypto/rand)
	salted, err := pbkdf2.Key(sha256.New, password, salt, iterations, sha256.Size)
	if err != nil {
		return "", fmt.Errorf("hash a database password: %w", err)
	}
	keyed := func(text string) []byte {
		mac := hmac.New(sha256.New, salted)
		mac.Write([]byte(text))
		return mac.Sum(nil)
	}
	stored := sha256.Sum256(keyed("Client Key"))
	encode := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", iterations, encode(salt), encode(stored[:]),
		encode(keyed("Server Key"))), nil
}

// withoutURL returns the cause of a failed connection without its address and user.
func withoutURL(err error) error {
	if fault, ok := errors.AsType[*pgconn.PgError](err); ok {
		return errors.New(fault.Message)
	}
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(next) {
		err = next
	}
	return err
}

// AdminFile returns the path of the settings file for `authserver admin` of this installation, which only its owner can
// read.
func (s *Stack) AdminFile() string { return s.home.path("admin.env") }

// ResourceapiFile returns the path of the settings file for the commands of resourceapi, which only its owner can read.
func (s *Stack) ResourceapiFile() string { return s.home.path("resourceapi.env") }

// Authserver returns the path of the authserver binary.
func (s *Stack) Authserver() string { return filepath.Join(s.options.Binaries, authserver) }

// writeSettingsFiles replaces the files at each start, because the stores' ports change.
func (s *Stack) writeSettingsFiles() error {
	admin := s.settings(authserver)
	if address, sends := s.mailSettings()["ALMONER_SMTP_URL"]; sends {
		admin["ALMONER_SMTP_URL"] = address
	}
	return errors.Join(writeSettings(s.AdminFile(), admin), writeSettings(s.ResourceapiFile(), s.settings(resourceapi)))
}

// writeSettings writes settings in the format of --config.
func writeSettings(path string, settings map[string]string) error {
	var lines strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		// Only a URL can contain a quote; a strings.Builder never fails.
		_, _ = fmt.Fprintf(&lines, "%s='%s'\n", name, strings.ReplaceAll(settings[name], "'", "%27"))
	}
	return localstore.WriteWhole(path, lines.String())
}
