package app_test

import (
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/shared/credential"
)

// Whoever is called out at night must not look for the fault in the wrong store.
func TestReadinessNamesNoPartButTheOneThatHangs(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	s := serve(t, func(c *app.Config) {
		c.DatabaseURL = credential.Secret("postgres://nobody@" + silent.Addr().String() + "/nothing")
	})
	response, err := http.Get(s.url + "/readyz")
	s.must(err)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	s.must(err)
	want := `{"keys":"does not answer","postgres":"does not answer","redis":"ok"}` + "\n" // keys are read from Postgres
	if response.StatusCode != http.StatusServiceUnavailable || string(body) != want {
		t.Errorf("%d %s", response.StatusCode, body)
	}
	// Without keys nobody can say that a token is forged.
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/v1/account/tenants/x/oauth-clients", nil)
	s.must(err)
	request.Header.Set("Authorization", "Bearer a.b.c")
	answer, err := http.DefaultClient.Do(request)
	s.must(err)
	s.must(answer.Body.Close())
	if answer.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a token without keys: %d", answer.StatusCode)
	}
}
