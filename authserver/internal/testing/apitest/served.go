package apitest

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// AppURL is the base URL of the pages of a served server.
const AppURL = "https://app.example.org"

// Served serves the whole of authserver with its routes. Only Fixture, Redis, Log, Uses and URL of the Server are set.
func Served(t testing.TB) *Server {
	t.Helper()
	s := &Server{t: t, Fixture: fixture.New(t), Redis: testkit.NewRedis(t), Log: &testkit.Log{}, Uses: &Uses{}}
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails (crypto/rand)
	reserved := httptest.NewServer(nil)
	address := reserved.Listener.Addr().(*net.TCPAddr).String()
	reserved.Close()
	made, err := app.New(t.Context(), app.Config{
		Listen:      address,
		BaseURL:     Issuer,
		AppURL:      AppURL,
		DatabaseURL: credential.Secret(s.Fixture.Database.Authserver),
		RedisURL:    credential.Secret(s.Redis.URL),
		Keys:        credential.Secret(base64.RawURLEncoding.EncodeToString(key)),
	}, slog.New(slog.NewTextHandler(s.Log, nil)))
	s.must(err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- made.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		s.must(<-ended)
	})
	s.URL = "http://" + address
	s.await()
	return s
}

func (s *Server) await() {
	s.t.Helper()
	for range 400 {
		if response, err := http.Get(s.URL + "/readyz"); err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return
			}
		}
		time.Sleep(25 * time.Millisecond)
	}
	s.t.Fatal("authserver did not become ready")
}
