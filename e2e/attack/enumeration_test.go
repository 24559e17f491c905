package attack

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
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
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// Neither the text nor the time of a response may reveal who has an account or which client exists.

// A proxy connects from the gateway's address, so the address in its X-Forwarded-For header is believed. Each attempt
// can use another address and reaches no limit.
type proxy struct {
	client *http.Client
	next   int
}

func newProxy(t *testing.T) *proxy {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(gateway.SourceAddress)}}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		return dialer.DialContext(ctx, "tcp4", net.JoinHostPort("127.0.0.1", port))
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &proxy{
		client: &http.Client{
			Transport:     transport,
			Timeout:       await.Long,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// signIn tries a password from a new address. It returns the status, the page and the time that the request took.
func (x *proxy) signIn(
	t *testing.T, p *harness.Product, email, password string,
) (status int, page string, took time.Duration) {
	t.Helper()
	x.next++
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.AppURL+"/login",
		strings.NewReader(url.Values{"email": {email}, "password": {password}}.Encode()))
	must(t, err)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("X-Forwarded-For", fmt.Sprintf("198.51.%d.%d", x.next/250, x.next%250+1))
	began := time.Now()
	response, err := x.client.Do(request)
	must(t, err)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	must(t, err)
	return response.StatusCode, string(body), time.Since(began)
}

// A kind is a kind of caller. Response times must not differ between kinds.
type kind struct {
	name   string
	sample func() time.Duration
}

// kindOf returns the kind of callers who ask with a name and a secret.
func kindOf[A any](
	name string, ask func(who, secret string) (A, time.Duration), who func() string, secret string,
) kind {
	return kind{name, func() time.Duration {
		_, took := ask(who(), secret)
		return took
	}}
}

func always(who string) func() string { return func() string { return who } }

const (
	fewSamples, manyShortSamples, manySamples = 10, 100, 2_000

	maxDifference = 5 * time.Millisecond
)

// likeInTime compares interleaved samples of each kind with those of the first kind, so that noise affects all alike.
// The long form compares medians. The short form compares only the fastest samples, which are the work itself: they may
// differ by half, so it detects that a password is not hashed.
func likeInTime(t *testing.T, kinds ...kind) {
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
			took[i] = append(took[i], k.sample())
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
	p := harness.NewProduct(t, shared(t), &seen) // not in parallel: it measures time
	x := newProxy(t)
	known, disabled, without := p.Database.User(t), p.Database.User(t), p.Database.User(t)
	// The hash has the same cost as real users' hashes: it is the hash of the demo's owner.
	p.Database.Exec(t, `update account.users set password_hash = (select password_hash from account.users where id = $2)
				where id = $1 or id = $3`, known.ID, p.Demo.Users.Owner.ID, disabled.ID)
	p.Database.Exec(t, `update account.users set disabled_at = now() where id = $1`, disabled.ID)
	p.Database.Exec(t, `update account.users set password_hash = null where id = $1`, without.ID)
	ask := func(email, password string) (string, time.Duration) {
		status, page, took := x.signIn(t, p, email, password)
		if status != http.StatusBadRequest {
			t.Fatalf("status %d", status)
		}
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
	likeInTime(t, kindOf("a wrong password", ask, always(known.Email), "wrong"),
		kindOf("an unknown user", ask, unknown, "wrong"),
		kindOf("a user without a password", ask, always(without.Email), "wrong"),
		kindOf("a disabled user with the right password", ask, always(disabled.Email), p.Demo.Users.Owner.Password))
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
	ask := func(id, secret string) (harness.Answer, time.Duration) {
		began := time.Now()
		answer := app.Exchange(t, map[string]any{
			"client_id": id, "client_secret": secret, "code": "alm_ac_x", "redirect_uri": app.RedirectURI,
		})
		return answer, time.Since(began)
	}
	known, _ := ask(app.ClientID, wrong)
	known.WantsFlat(t, http.StatusBadRequest, "invalid_client")
	for name, pair := range map[string][2]string{
		"unknown":         {uuid.NewString(), wrong},
		"deleted":         {deleted.ClientID, deleted.ClientSecret},
		"nonsense":        {"nonsense", wrong},
		"SQL":             {"' or '1'='1", wrong},
		"NUL":             {"\x00", wrong},
		"misspelt secret": {app.ClientID, "nonsense"},
		"empty secret":    {app.ClientID, "x"},
	} {
		if answer, _ := ask(pair[0], pair[1]); answer.Status != known.Status ||
			string(answer.Body) != string(known.Body) {
			t.Errorf("%s differs:\n%s\n%s", name, answer, known)
		}
	}
	basicWrong := p.API().With("Authorization", harness.Basic(basic.ClientID, wrong)).Form(t, harness.TokenPath,
		url.Values{"grant_type": {"authorization_code"}, "code": {"x"}, "redirect_uri": {"x"}})
	basicUnknown := p.API().With("Authorization", harness.Basic(uuid.NewString(), wrong)).Form(t, harness.TokenPath,
		url.Values{"grant_type": {"authorization_code"}, "code": {"x"}, "redirect_uri": {"x"}})
	if basicWrong.Status != basicUnknown.Status || string(basicWrong.Body) != string(basicUnknown.Body) {
		t.Errorf("Basic authentication differs:\n%s\n%s", basicWrong, basicUnknown)
	}
	for _, token := range []string{"alm_rt_x", app.ClientSecret, ws.Token} {
		one, other := connector.Revoke(t, token), harness.Connector.Revoke(connector, t, token+"x")
		if one.Status != other.Status || string(one.Body) != string(other.Body) {
			t.Errorf("a token's response differs:\n%s\n%s", one, other)
		}
	}
	// All samples use one unknown client: the first failure of a client ID queries Redis, whether the client exists or
	// not.
	likeInTime(t, kindOf("a wrong secret", ask, always(app.ClientID), wrong),
		kindOf("an unknown client", ask, always(uuid.NewString()), wrong),
		kindOf("a misspelt secret", ask, always(app.ClientID), "nonsense"),
		kindOf("a deleted client", ask, always(deleted.ClientID), wrong))
}
