package attack

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/deploy/local/gateway"
	"github.com/almonerhq/almoner/e2e/harness"
)

// Neither the text nor the time of a response may reveal who has an account or which client exists.

// newProxied returns the product as a proxy reaches it: its requests come from the gateway's address, so the address in
// their X-Forwarded-For header is believed. Each attempt can name another address and reaches no limit.
func newProxied(t *testing.T) *harness.Product {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(gateway.SourceAddress)}}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		return dialer.DialContext(ctx, "tcp4", net.JoinHostPort("127.0.0.1", port))
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return harness.NewProductWithTransport(t, shared(t), &seen, transport)
}

// A try asks with a name and a secret. It returns the response without what always differs, and how long it took.
type try func(who, secret string) (response string, took time.Duration)

// A kind is a kind of caller. Response times must not differ between kinds.
type kind struct {
	name   string
	who    func() string
	secret string
}

func always(who string) func() string { return func() string { return who } }

const (
	fewSamples, manyShortSamples, manySamples = 10, 100, 2_000

	maxDifference = 5 * time.Millisecond
)

// likeInTime compares interleaved samples of each kind with those of the first kind, so that noise affects all alike.
// The long form compares medians. The short form compares only the fastest samples, which are the work itself: they may
// differ by half, so it detects that a password is not hashed.
func likeInTime(t *testing.T, ask try, kinds ...kind) {
	t.Helper()
	samples, typical, allowed := fewSamples, slices.Min[[]time.Duration], 0.5
	if harness.Long() {
		samples, typical, allowed = manySamples, median, 0
	}
	var summary string
	harness.Record(t, "%d times each%v", samples, harness.Deferred[string](func() string { return summary }))
	took := make([][]time.Duration, len(kinds))
	differs := func() bool {
		first := typical(took[0])
		return slices.ContainsFunc(took, func(each []time.Duration) bool {
			of := typical(each)
			difference := (of - first).Abs()
			return difference > maxDifference && float64(difference) > allowed*float64(max(of, first))
		})
	}
	// On a busy machine, a kind may have no undisturbed sample among the first.
	for n := 0; n < samples || !harness.Long() && n < manyShortSamples && differs(); n++ {
		for i, k := range kinds {
			_, sample := ask(k.who(), k.secret)
			took[i] = append(took[i], sample)
		}
	}
	for i, k := range kinds {
		summary += fmt.Sprintf(", %s %s", k.name, typical(took[i]).Round(10*time.Microsecond))
	}
	if differs() {
		t.Errorf("response time differs%s", summary)
	}
}

func median(durations []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(durations))
	return sorted[len(sorted)/2]
}

var requestID = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

func TestLogin_DoesNotRevealAccounts(t *testing.T) {
	p := newProxied(t) // not in parallel: it measures time
	known, disabled, without := p.Database.User(t), p.Database.User(t), p.Database.User(t)
	// The hash has the same cost as real users' hashes: it is the hash of the demo's owner.
	p.Database.Exec(t, `update account.users set password_hash = (select password_hash from account.users where id = $2)
				where id = $1 or id = $3`, known.ID, p.Demo.Users.Owner.ID, disabled.ID)
	p.Database.Exec(t, `update account.users set disabled_at = now() where id = $1`, disabled.ID)
	p.Database.Exec(t, `update account.users set password_hash = null where id = $1`, without.ID)
	tries := 0
	ask := func(email, password string) (string, time.Duration) {
		tries++
		from := p.App().With("X-Forwarded-For", fmt.Sprintf("198.51.%d.%d", tries/250, tries%250+1))
		began := time.Now()
		answer := from.Form(t, "/login", url.Values{"email": {email}, "password": {password}})
		took := time.Since(began)
		page := string(answer.Wants(t, http.StatusBadRequest).Body)
		return requestID.ReplaceAllString(strings.ReplaceAll(page, email, "EMAIL"), "ID"), took
	}
	want, _ := ask(known.Email, "wrong")
	unknown := func() string { return "nobody." + strings.ToLower(rand.Text()) + "@example.org" }
	for name, email := range map[string]string{
		"an unknown user":           unknown(),
		"a disabled user":           disabled.Email,
		"a user without a password": without.Email,
	} {
		if page, _ := ask(email, "wrong"); page != want {
			t.Errorf("the page for %s differs from that for a wrong password", name)
		}
	}
	if page, _ := ask(disabled.Email, p.Demo.Users.Owner.Password); page != want {
		t.Error("the page for a disabled user with the right password differs")
	}
	likeInTime(t, ask, kind{"a wrong password", always(known.Email), "wrong"},
		kind{"an unknown user", unknown, "wrong"}, kind{"a user without a password", always(without.Email), "wrong"},
		kind{"a disabled user with the right password", always(disabled.Email), p.Demo.Users.Owner.Password})
}

func TestTokenEndpoint_DoesNotRevealClients(t *testing.T) {
	p := harness.NewProduct(t, shared(t), &seen) // not in parallel: it measures time
	ws := p.NewWorkspace(t)
	app := ws.Confidential(t, "", harness.ReadProgrammes)
	deleted := ws.Confidential(t, "", harness.ReadProgrammes)
	basic := ws.Confidential(t, "client_secret_basic", harness.ReadProgrammes)
	connector := ws.Connector(t, harness.ReadProgrammes)
	p.As(ws.Token).Send(t, http.MethodDelete, ws.Clients()+"/"+deleted.ClientID, "", "").Wants(t, http.StatusNoContent)
	wrong := deleted.ClientSecret // well-formed, but of another client
	ask := func(id, secret string) (string, time.Duration) {
		began := time.Now()
		answer := app.Exchange(t, map[string]any{
			"client_id": id, "client_secret": secret, "code": "alm_ac_x", "redirect_uri": app.RedirectURI,
		})
		took := time.Since(began)
		answer.WantsFlat(t, http.StatusBadRequest, "invalid_client")
		return string(answer.Body), took
	}
	known, _ := ask(app.ClientID, wrong)
	for name, pair := range map[string][2]string{
		"unknown":         {uuid.NewString(), wrong},
		"deleted":         {deleted.ClientID, deleted.ClientSecret},
		"nonsense":        {"nonsense", wrong},
		"SQL":             {"' or '1'='1", wrong},
		"NUL":             {"\x00", wrong},
		"misspelt secret": {app.ClientID, "nonsense"},
		"empty secret":    {app.ClientID, "x"},
	} {
		if answer, _ := ask(pair[0], pair[1]); answer != known {
			t.Errorf("%s differs:\n%s\n%s", name, answer, known)
		}
	}
	byBasic := func(id string) harness.Answer {
		return p.API().With("Authorization", harness.Basic(id, wrong)).Form(t, harness.TokenPath,
			url.Values{"grant_type": {"authorization_code"}, "code": {"x"}, "redirect_uri": {"x"}})
	}
	alike(t, "unknown client with Basic authentication", byBasic(basic.ClientID), byBasic(uuid.NewString()))
	for _, token := range []string{"alm_rt_x", app.ClientSecret, ws.Token} {
		alike(t, "revocation of another token", connector.Revoke(t, token), connector.Revoke(t, token+"x"))
	}
	// All samples use one unknown client: the first failure of a client ID queries Redis, whether the client exists or
	// not.
	likeInTime(t, ask, kind{"a wrong secret", always(app.ClientID), wrong},
		kind{"an unknown client", always(uuid.NewString()), wrong},
		kind{"a misspelt secret", always(app.ClientID), "nonsense"},
		kind{"a deleted client", always(deleted.ClientID), wrong})
}
