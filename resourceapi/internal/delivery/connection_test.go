package delivery

import (
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/almonerhq/almoner/shared/contract/webhook"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/net/publicnet"
)

var secrets = []credential.Secret{"whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}

// trusting returns a Deliverer that trusts the certificate of the server.
func trusting(server *httptest.Server) *Deliverer {
	trusted := x509.NewCertPool()
	trusted.AddCert(server.Certificate())
	return New(Deps{Network: publicnet.New(publicnet.Options{Trusted: trusted}), Now: time.Now})
}

// A connection to a receiver is used again, also after a short body, but not after one that is long. The header that
// makes this safe is not sent. The beginning of the response is kept, unless the request had personal data.
func TestPost_UsesConnectionAgain(t *testing.T) {
	t.Parallel()
	var connections atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, sent := r.Header["Idempotency-Key"]; sent {
			t.Error("the request has an Idempotency-Key")
		}
		if body := strings.TrimPrefix(r.URL.Path, "/"); body != "long" {
			_, _ = io.WriteString(w, body)
			return
		}
		_, _ = io.WriteString(w, strings.Repeat("long", maxBody))
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.StartTLS()
	defer server.Close()
	d := trusting(server)
	personal, err := d.post(t.Context(), server.URL+"/ok", secrets, message{"evt_1", []byte("{}"), false, true})
	if err != nil || personal.Outcome != Accepted || personal.Response != nil {
		t.Errorf("with personal data: %+v, %v", personal, err)
	}
	for _, c := range []struct {
		body        string
		connections int64
	}{{"", 1}, {"ok", 1}, {"long", 1}, {"ok", 2}, {"", 2}} {
		a, err := d.post(t.Context(), server.URL+"/"+c.body, secrets, message{id: "evt_1", body: []byte("{}")})
		if err != nil || a.Outcome != Accepted || connections.Load() != c.connections {
			t.Errorf("%s: %+v, %v over %d connections, want %d", c.body, a, err, connections.Load(), c.connections)
		}
		kept := strings.ReplaceAll(c.body, "long", strings.Repeat("long", webhook.MaxResponse/len("long")))
		if string(a.Response) != kept {
			t.Errorf("%s: kept %d bytes: %.20s", c.body, len(a.Response), a.Response)
		}
	}
}

// A receiver that answers and leaves the promised body out does not keep the delivery: its connection is closed.
func TestPost_DoesNotWaitForBody(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "2")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	d := trusting(server)
	d.client.Timeout = 0
	a, err := d.post(t.Context(), server.URL, secrets, message{id: "evt_1", body: []byte("{}")})
	if err != nil || a.Status != 200 {
		t.Errorf("%+v, %v", a, err)
	}
}
