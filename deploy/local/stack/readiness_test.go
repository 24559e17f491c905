package stack

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/shared/devkit/localstore/child"
)

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
