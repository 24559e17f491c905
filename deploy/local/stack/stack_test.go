package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
	"github.com/almonerhq/almoner/shared/devkit/localstore/child"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

var must = testkit.Must

var binaries = testkit.Once(func(t testing.TB) string {
	if dir := os.Getenv("ALMONER_TEST_BINARIES"); dir != "" {
		return dir
	}
	dir, err := localstore.ProcessDir("almoner-stack-bin-")
	must(t, err)
	must(t, Build(t.Context(), "../../..", dir, Services()))
	return dir
})

// newHome returns a directory that the stores' user can reach.
func newHome(t *testing.T) string {
	t.Helper()
	dir, err := localstore.TempDir("almoner-stack-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

var prepared = testkit.Once(func(t testing.TB) string {
	if home := os.Getenv("ALMONER_TEST_HOME"); home != "" {
		return home
	}
	dir, err := localstore.ProcessDir("almoner-stack-home-")
	must(t, err)
	must(t, Prepare(t.Context(), optionsFor(t, dir)))
	return dir
})

// usedHome returns a copy of a home that Prepare created, for tests that do not need a first start.
func usedHome(t *testing.T) string {
	t.Helper()
	dir := newHome(t)
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", prepared(t)+"/.", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// threePorts finds three consecutive free ports.
func threePorts(t *testing.T) int {
	t.Helper()
	first, err := localstore.FreePorts(3)
	must(t, err)
	return first
}

func optionsFor(t testing.TB, home string) Options {
	t.Helper()
	return Options{Home: home, Binaries: binaries(t), Tools: os.Getenv("ALMONER_TEST_TOOLS"), Volatile: true}
}

func start(t *testing.T, options Options) *Stack {
	t.Helper()
	s, err := Start(t.Context(), options)
	must(t, err)
	t.Cleanup(s.Stop)
	return s
}

// leftIn returns the processes that work in a directory or were started from it.
func leftIn(dir string) []string {
	var left []string
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range entries {
		command, _ := os.ReadFile(process + "/cmdline")
		workDir, _ := os.Readlink(process + "/cwd")
		if strings.HasPrefix(workDir, dir) || strings.Contains(string(command), dir) {
			left = append(left, strings.ReplaceAll(string(command), "\x00", " "))
		}
	}
	return left
}

// call sends a request with the owner's token.
func call(t *testing.T, s *Stack, method, path, body string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, s.BaseURL+path, strings.NewReader(body))
	must(t, err)
	request.Header.Set("Authorization", "Bearer "+s.Demo.Tokens.Owner)
	request.Header.Set("X-Tenant-Id", s.Demo.Workspaces.Main.ID)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	must(t, err)
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	must(t, err)
	return response.StatusCode, string(content)
}

func listProgrammes(t *testing.T, s *Stack) (int, string) {
	t.Helper()
	return call(t, s, http.MethodGet, "/v1/programmes/programmes?limit=200", "")
}

// wantNothingLeft checks that no process works in a directory or was started from it.
func wantNothingLeft(t *testing.T, dir string) {
	t.Helper()
	if left := leftIn(dir); len(left) > 0 {
		t.Errorf("left running: %q", left)
	}
}

// In a home that other users cannot enter, root's stores, which run as another user, are elsewhere.
func TestStart_SecondStartFindsStoredDataOfPrivateHome(t *testing.T) {
	t.Parallel()
	closed := t.TempDir()
	must(t, os.Chmod(closed, 0o700))
	options := optionsFor(t, filepath.Join(closed, ".almoner"))
	options.Port = threePorts(t)
	first := start(t, options)
	place := first.StoreDir()
	t.Cleanup(func() { first.Stop(); _ = os.RemoveAll(place) })
	if root := os.Geteuid() == 0; root && strings.HasPrefix(place, closed) || !root && place != options.Home {
		t.Fatalf("the stores are in %s", place)
	}
	if status, body := listProgrammes(t, first); status != http.StatusOK || !strings.Contains(body, `"count":200`) {
		t.Fatalf("%d %.200s", status, body)
	}
	before, err := os.ReadFile(filepath.Join(options.Home, "demo.json"))
	must(t, err)
	execute(t, first.DatabaseURL, `insert into resource.programmes (id, tenant_id, name, status)
		values (gen_random_uuid(), '`+first.Demo.Workspaces.Main.ID+`', 'Put in between', 'draft')`)
	beside := options
	beside.Port = 0
	if _, err := Start(t.Context(), beside); err == nil || !strings.Contains(err.Error(), "is running in") {
		t.Errorf("a second start while the first one runs: %v", err)
	}
	first.Stop()
	wantNothingLeft(t, options.Home)
	wantNothingLeft(t, place)

	second := start(t, options)
	if second.Demo != first.Demo || second.StoreDir() != place {
		t.Errorf("the second start has other demo data, or its stores in %s", second.StoreDir())
	}
	after, err := os.ReadFile(filepath.Join(options.Home, "demo.json"))
	if err != nil || string(after) != string(before) {
		t.Errorf("demo.json has changed, %v", err)
	}
	if status, body := listProgrammes(t, second); status != http.StatusOK || !strings.Contains(body, "Put in between") {
		t.Errorf("%d %.200s", status, body)
	}
	// The stores may use other ports now.
	administration, err := os.ReadFile(second.AdminFile())
	if err != nil || !strings.Contains(string(administration), "ALMONER_REDIS_URL='"+second.RedisURL+"'\n") {
		t.Errorf("admin.env is not of this start, %v", err)
	}
	if info, err := os.Stat(second.AdminFile()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others can read the keys: %v", err)
	}
}

func TestStart_AddressesServeTheContract(t *testing.T) {
	t.Parallel()
	options := optionsFor(t, usedHome(t))
	options.Authservers = 2
	s := start(t, options)
	for path, want := range map[string]string{
		s.BaseURL + "/.well-known/oauth-authorization-server": `"issuer":"` + s.BaseURL + `"`,
		s.BaseURL + "/v1/account/oauth/jwks":                  `"keys"`,
		s.ResourceURL + "/healthz":                            "",
		s.AppURL + "/healthz":                                 "",
		s.Authservers[1].URL + "/healthz":                     "",
	} {
		response, err := http.Get(path)
		must(t, err)
		body, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
			t.Errorf("%s: %d %.300s", path, response.StatusCode, body)
		}
	}
	for _, service := range append(s.Authservers, s.Resourceapi) {
		service.Kill()
		if err := service.Restart(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if status, body := listProgrammes(t, s); status != http.StatusOK {
		t.Errorf("after a restart of everything: %d %.200s", status, body)
	}
}

func TestWait_NamesDeadService(t *testing.T) {
	t.Parallel()
	options := optionsFor(t, usedHome(t))
	s := start(t, options)
	quiet, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := s.Wait(quiet); err != nil {
		t.Fatalf("before anything has died: %v", err)
	}
	s.Resourceapi.Kill()
	if err := s.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "resourceapi ended") {
		t.Errorf("got %v", err)
	}
	s.Stop()
	wantNothingLeft(t, options.Home)
}

// A private store that is killed starts again, with its data, and the services work again.
func TestWait_StartsKilledStoresAgain(t *testing.T) {
	t.Parallel()
	options := optionsFor(t, usedHome(t))
	said := make(chan string, 100)
	options.Progress = func(line string) { said <- line }
	s := start(t, options)
	ctx, cancel := context.WithCancel(t.Context())
	waited := make(chan error, 1)
	go func() { waited <- s.Wait(ctx) }()
	for name, kill := range map[string]func(){"PostgreSQL": s.Postgres.Kill, "Redis": s.Redis.Kill} {
		kill()
		for again := false; !again; {
			select {
			case line := <-said:
				again = strings.HasPrefix(line, name+" runs again")
			case err := <-waited:
				t.Fatalf("after %s was killed: %v", name, err)
			}
		}
		await.True(t, "a request succeeds after "+name+" was killed", func() bool {
			status, _ := listProgrammes(t, s)
			_, trouble := ask(t.Context(), s.Authservers[0].URL)
			return status == http.StatusOK && trouble == ""
		})
	}
	cancel()
	if err := <-waited; err != nil {
		t.Error(err)
	}
}

// A store that cannot be started again, or ends again and again, ends Wait, which says why.
func TestKeep_GivesUp(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		failures int
		failure  error
		want     string
	}{
		{0, nil, "Redis ended; it ended 4 times within a minute"},
		{startTries - 1, errFull, "Redis ended; it ended 4 times within a minute"},
		{startTries, errFull, "Redis ended, and Redis cannot be started again: disk full (its data is in /x/stores;"},
		{1, context.DeadlineExceeded, "Redis ended, and Redis cannot be started again: context deadline exceeded ("},
	} {
		synctest.Test(t, func(t *testing.T) {
			ended := make(chan struct{})
			close(ended)
			s := &Stack{home: &home{stores: "/x/stores"}}
			err := s.keep(t.Context(), "Redis", &endedStore{ended, test.failures, test.failure})
			if err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("after %d failed starts: %v", test.failures, err)
			}
		})
	}
}

var errFull = errors.New("disk full")

// An endedStore is a store that has ended. Its next failures starts fail. A real store that fails so often would need a
// broken disk.
type endedStore struct {
	done     chan struct{}
	failures int // how many more starts fail
	failure  error
}

func (e *endedStore) Done() <-chan struct{} { return e.done }
func (e *endedStore) Outcome() string       { return "Redis ended" }

func (e *endedStore) Restart(context.Context) error {
	if e.failures == 0 {
		return nil
	}
	e.failures--
	return e.failure
}

func TestStart_PortInUseIsNamedFirst(t *testing.T) {
	t.Parallel()
	options := optionsFor(t, newHome(t))
	options.Port = threePorts(t)
	for _, taken := range []string{"127.0.0.1", "0.0.0.0"} {
		listener, err := net.Listen("tcp", net.JoinHostPort(taken, strconv.Itoa(options.Port+2)))
		must(t, err)
		_, err = Start(t.Context(), options)
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("port %d is in use", options.Port+2)) ||
			!strings.Contains(err.Error(), "PORT=") {
			t.Errorf("taken on %s: %v", taken, err)
		}
		_ = listener.Close()
	}
	if _, err := os.Stat(filepath.Join(options.Home, "postgres")); !errors.Is(err, os.ErrNotExist) {
		t.Error("a store was created before the ports were checked")
	}
}

func TestStart_FailureLeavesNothing(t *testing.T) {
	t.Parallel()
	options := optionsFor(t, newHome(t))
	options.Binaries = t.TempDir()
	if _, err := Start(t.Context(), options); err == nil || !strings.Contains(err.Error(), "authserver") {
		t.Errorf("got %v", err)
	}
	wantNothingLeft(t, options.Home)
	// The home is unlocked again.
	options = optionsFor(t, options.Home)
	options.Settings = map[string]string{"ALMONER_KEYS": "too short"}
	if _, err := Start(t.Context(), options); err == nil || !strings.Contains(err.Error(), "ALMONER_KEYS") {
		t.Errorf("a service that refuses its settings: %v", err)
	}
	wantNothingLeft(t, options.Home)
}

func TestTroubleIn_NamesWhatDoesNotWork(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status     int
		body, want string
	}{
		{200, `{"postgres":"ok","redis":"ok"}`, ""},
		{200, `{"postgres":"ok","redis":"does not answer"}`, "redis does not answer"},
		{
			503, `{"keys":"does not answer","postgres":"does not answer","redis":"ok"}`,
			"keys does not answer, postgres does not answer",
		},
		{503, `{"status":"leaving"}`, "status leaving"},
		{
			503, `{"error":{"code":"UNAVAILABLE","message":"The database does not answer."}}`,
			"The database does not answer.",
		},
		{502, `<html>`, "it returns status 502"},
		{200, ``, ""},
	} {
		if got := troubleIn(c.status, []byte(c.body)); got != c.want {
			t.Errorf("%d %s: %q, want %q", c.status, c.body, got, c.want)
		}
	}
}

// TestLook_SaysEachChangeOnce (F22) checks that a store that does not respond is reported as soon as a service reports
// it, with the setting that names it.
func TestLook_SaysEachChangeOnce(t *testing.T) {
	t.Parallel()
	body := `{"postgres":"ok","redis":"ok"}`
	server := httptest.NewServer(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }))
	t.Cleanup(server.Close)
	var lines []string
	s := &Stack{
		options: Options{
			RedisURL: "redis://:hidden@127.0.0.1:1/0",
			Progress: func(line string) { lines = append(lines, line) },
		},
	}
	s.Authservers = []*Service{{Name: "authserver", URL: server.URL, Spec: child.Spec{Log: "/x/authserver.log"}}}
	reported := map[*Service]string{}
	for _, next := range []string{
		body, `{"postgres":"ok","redis":"does not answer"}`, `{"postgres":"ok","redis":"does not answer"}`, body,
	} {
		body = next
		s.look(t.Context(), reported)
	}
	if want := []string{
		"authserver has a problem: redis does not answer (check ALMONER_REDIS_URL; its log is /x/authserver.log)",
		"authserver works again",
	}; !slices.Equal(lines, want) {
		t.Errorf("%q", lines)
	}
}

// TestStart_DeadStoreIsNamed checks that nothing starts with a store that does not respond, and that Check reports it
// before anything is built. The message names the setting and contains no password.
func TestStart_DeadStoreIsNamed(t *testing.T) {
	t.Parallel()
	for setting, options := range map[string]Options{
		"ALMONER_REDIS_URL":    {RedisURL: "redis://:hidden@127.0.0.1:1/0"},
		"ALMONER_DATABASE_URL": {DatabaseURL: "postgres://almoner:hidden@127.0.0.1:1/almoner"},
	} {
		with := optionsFor(t, newHome(t))
		with.RedisURL, with.DatabaseURL = options.RedisURL, options.DatabaseURL
		checked := Check(t.Context(), with)
		_, started := Start(t.Context(), with)
		for what, err := range map[string]error{"Check": checked, "Start": started} {
			if err == nil {
				t.Errorf("%s: %s names a dead store", what, setting)
				continue
			}
			for _, want := range []string{setting, "cannot connect", "127.0.0.1:1", "refused", "unset"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: the message lacks %q: %v", what, want, err)
				}
			}
			if strings.Contains(err.Error(), "hidden") || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
}

func TestBuild_WithoutGoSaysWhy(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := Build(t.Context(), t.TempDir(), t.TempDir(), Services())
	if err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("%v", err)
	}
}
