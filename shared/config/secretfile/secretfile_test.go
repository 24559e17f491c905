package secretfile

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/almonerhq/almoner/shared/config/redisurl"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/database/pg"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

var must = testkit.Must

// A mount is a directory whose file is replaced as a CSI driver does it: path is a link to a file behind a link to a
// directory, and the link to the directory is exchanged.
type mount struct {
	*testing.T
	dir  string
	made int
}

func newMount(t *testing.T, content string) *mount {
	t.Helper()
	m := &mount{T: t, dir: t.TempDir()}
	m.must(os.Symlink("..data/secret", m.path()))
	m.put(content)
	return m
}

func (m *mount) path() string { return filepath.Join(m.dir, "secret") }

func (m *mount) must(err error) {
	m.Helper()
	must(m, err)
}

func (m *mount) put(content string) {
	m.Helper()
	m.made++
	version := fmt.Sprint("..", m.made)
	m.must(os.Mkdir(filepath.Join(m.dir, version), 0o700))
	m.must(os.WriteFile(filepath.Join(m.dir, version, "secret"), []byte(content), 0o600))
	m.must(os.Symlink(version, filepath.Join(m.dir, "..new")))
	m.must(os.Rename(filepath.Join(m.dir, "..new"), filepath.Join(m.dir, "..data")))
}

func logTo(log *testkit.Log) *slog.Logger { return slog.New(slog.NewTextHandler(log, nil)) }

// withLogin returns the URL with another user and password.
func withLogin(t *testing.T, address, user, password string) string {
	t.Helper()
	parsed, err := url.Parse(address)
	if err != nil {
		t.Fatal("the URL cannot be parsed")
	}
	parsed.User = url.UserPassword(user, password)
	return parsed.String()
}

// The password of a role is changed while a pool is in use, and then the role.
func TestPostgres_NewConnectionsUsePresentLogin(t *testing.T) {
	database := testkit.NewDatabase(t)
	admin := testkit.Connect(t, database.Superuser)
	execute := func(sql string) {
		t.Helper()
		if _, err := admin.Exec(context.Background(), sql); err != nil {
			t.Fatal(err)
		}
	}
	first, second := "first_"+rand.Text()[:8], "second_"+rand.Text()[:8]
	for _, role := range []string{first, second} {
		execute(fmt.Sprintf("create role %q login password 'old'", role))
		t.Cleanup(func() { execute(fmt.Sprintf("drop role %q", role)) })
	}
	m := newMount(t, withLogin(t, database.Authserver, first, "old"))
	var log testkit.Log
	address := credential.Secret(withLogin(t, database.Authserver, first, "old"))
	source := Postgres("ALMONER_DATABASE_URL", m.path(), address, logTo(&log))
	pool, err := pg.Open(t.Context(), source, pg.Options{Connections: 4})
	must(t, err)
	defer pool.Close()
	user := func() (name string, err error) {
		return name, pool.QueryRow(t.Context(), "select current_user").Scan(&name)
	}
	wants := func(want string) {
		t.Helper()
		if got, err := user(); err != nil || got != want {
			t.Fatalf("%q %v, want %q", got, err, want)
		}
	}
	wants(first)
	execute(fmt.Sprintf("alter role %q password 'new'", first))
	wants(first) // the connection stays
	pool.Reset()
	if _, err := user(); err == nil {
		t.Fatal("the server accepts the old password")
	}
	m.put(withLogin(t, database.Authserver, first, "new") + "\n")
	wants(first)
	m.put(withLogin(t, database.Authserver, second, "old"))
	pool.Reset()
	wants(second)
	if text := log.String(); strings.Count(text, "setting changed") != 2 || strings.Contains(text, first) {
		t.Error(text)
	}
}

func TestRedis_NewConnectionsUsePresentPassword(t *testing.T) {
	server := testkit.NewRedis(t)
	m := newMount(t, server.URL)
	var log testkit.Log
	source := Redis("ALMONER_REDIS_URL", m.path(), credential.Secret(server.URL), logTo(&log))
	limits := redisurl.Limits{
		Dial:        testkit.StoreWait,
		Call:        testkit.StoreWait,
		Pool:        testkit.StoreWait,
		Connections: 1,
	}
	open := func() goredis.UniversalClient {
		client, err := redisurl.OpenFromSource(source, limits)
		must(t, err)
		t.Cleanup(func() { _ = client.Close() })
		return client
	}
	client, later := open(), open()
	must(t, client.ConfigSet(t.Context(), "requirepass", "new").Err())
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Error("the connection did not stay:", err)
	}
	if err := later.Ping(t.Context()).Err(); err == nil {
		t.Fatal("the server accepts the old password")
	}
	m.put(withLogin(t, server.URL, "", "new"))
	if err := later.Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
}

func TestRedis_FollowsPasswordOfRedisBehindSentinels(t *testing.T) {
	const address = "redis://:sentinel@a:1/0?master_name=m&password=%s&addr=b:1"
	m := newMount(t, fmt.Sprintf(address, "old"))
	var log testkit.Log
	source := Redis("R", m.path(), credential.Secret(fmt.Sprintf(address, "old")), logTo(&log))
	m.put(fmt.Sprintf(address, "new"))
	if got := source().Reveal(); got != fmt.Sprintf(address, "new") {
		t.Error(got)
	}
	m.put(strings.Replace(fmt.Sprintf(address, "newer"), ":sentinel@", ":other@", 1))
	if got := source().Reveal(); got != fmt.Sprintf(address, "new") {
		t.Error("follows the password of the Sentinels, which the client does not")
	}
}

// No problem with the file changes the value, and each problem is logged once.
func TestFile_KeepsLastValidValue(t *testing.T) {
	const valid = "postgres://u:hush@localhost:5432,standby:5433/almoner"
	for name, spoil := range map[string]func(m *mount){
		"is empty":                func(m *mount) { m.put("\n") },
		"is not text":             func(m *mount) { m.put("hush\x00") },
		"is not a PostgreSQL URL": func(m *mount) { m.put("postgres://u:hush@%zz") },
		"names another server":    func(m *mount) { m.put("postgres://u:hush@localhost:5432,elsewhere:5433/almoner") },
		"or database":             func(m *mount) { m.put("postgres://u:hush@localhost:5432,standby:5433/other") },
		"no such file":            func(m *mount) { m.must(os.Remove(filepath.Join(m.dir, "..data"))) },
		"is not a regular file": func(m *mount) {
			m.must(os.Remove(m.path()))
			m.must(os.Mkdir(m.path(), 0o700))
		},
		"is larger than 1048576 bytes": func(m *mount) { m.put(strings.Repeat("hush", 1<<19)) },
	} {
		m := newMount(t, valid)
		var log testkit.Log
		source := Postgres("ALMONER_DATABASE_URL", m.path(), valid, logTo(&log))
		spoil(m)
		for range 3 {
			if source() != valid {
				t.Errorf("%s: the value changed", name)
			}
		}
		text := log.Take()
		if strings.Count(text, "level=ERROR") != 1 || !strings.Contains(text, name) ||
			!strings.Contains(text, "ALMONER_DATABASE_URL") {
			t.Errorf("%s: %q", name, text)
		}
		if strings.Contains(text, "hush") || strings.Contains(text, m.dir) {
			t.Errorf("%s: the log quotes the value or the path: %q", name, text)
		}
	}
}

func TestFile_LogsThatItCanBeReadAgain(t *testing.T) {
	m := newMount(t, "redis://:hush@a:1")
	var log testkit.Log
	source := Redis("ALMONER_REDIS_URL", m.path(), "redis://:hush@a:1", logTo(&log))
	m.put("")
	source()
	m.put("redis://:hush2@a:1")
	if got := source(); got != "redis://:hush2@a:1" {
		t.Error("the value did not change")
	}
	text := log.String()
	if !strings.Contains(text, "can be read again") || !strings.Contains(text, "setting changed") ||
		strings.Contains(text, "hush") {
		t.Error(text)
	}
}

// A setting without a file, and one from a pipe, keep their value. A pipe can be read once.
func TestFile_ReadsOnlyRegularFilesAgain(t *testing.T) {
	read, write, err := os.Pipe()
	must(t, err)
	defer func() { _, _ = read.Close(), write.Close() }()
	for _, path := range []string{"", fmt.Sprint("/dev/fd/", read.Fd())} {
		var log testkit.Log
		source := Redis("ALMONER_REDIS_URL", path, "redis://a:1", logTo(&log))
		if source() != "redis://a:1" || log.String() != "" {
			t.Errorf("%q: %s", path, log.String())
		}
	}
}

func newKey() string {
	return base64.RawURLEncoding.EncodeToString([]byte(rand.Text() + rand.Text())[:32])
}

// Keys are replaced while boxes are in use; a file that is being rewritten is not used.
func TestKeys_FollowFile(t *testing.T) {
	old, fresh := newKey(), newKey()
	m := newMount(t, old)
	parsed, err := seal.ParseKeys(credential.Secret(old))
	m.must(err)
	box, err := seal.NewBox(parsed, "cursor")
	m.must(err)
	var log testkit.Log
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(context.Background())
		defer stop()
		follow := Keys("ALMONER_KEYS", m.path(), credential.Secret(old), parsed, logTo(&log))
		done := make(chan struct{})
		go func() { follow(ctx); close(done) }()
		opens := func(with string, text string) bool {
			other, err := seal.ParseKeys(credential.Secret(with))
			m.must(err)
			fresh, err := seal.NewBox(other, "cursor")
			m.must(err)
			_, err = fresh.Open(text)
			return err == nil
		}
		before := box.Seal(nil)
		readings := func(n int) {
			time.Sleep(time.Duration(n) * keysInterval)
			synctest.Wait()
		}
		time.Sleep(keysInterval / 2)
		m.put(fresh + "," + old)
		if readings(1); !opens(old, box.Seal(nil)) || strings.Contains(log.String(), "changed") {
			t.Error("the file is used after one reading")
		}
		if readings(1); !opens(fresh, box.Seal(nil)) {
			t.Error("the new key does not seal")
		}
		if _, err := box.Open(before); err != nil {
			t.Error("the old key does not open")
		}
		m.put(fresh + ",hush")
		readings(3)
		if _, err := box.Open(before); err != nil || !opens(fresh, box.Seal(nil)) {
			t.Error("an invalid file changed the keys")
		}
		stop()
		<-done
	})
	if text := log.String(); strings.Count(text, "level=ERROR") != 1 || strings.Count(text, "setting changed") != 1 ||
		strings.Contains(text, fresh) || strings.Contains(text, "hush") {
		t.Error(text)
	}
}
