package bench

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/almonerhq/almoner/deploy/local/demo"
	"github.com/almonerhq/almoner/deploy/local/gateway"
	"github.com/almonerhq/almoner/e2e/harness"
)

const (
	guessesASecond = 120
	guessers       = 120 // addresses
	refreshesEvery = 50 * time.Millisecond
	signInWithin   = 3 * time.Second
	// startsOf is how often each flood starts: its first seconds, in which no address has failed yet, are the worst.
	startsOf        = 5
	signInsPerStart = 20
	betweenSignIns  = 200 * time.Millisecond
	givesUpAfter    = 30 * time.Second
)

// A guessing is a flood of wrong passwords.
type guessing struct {
	what    string
	address func(start, guesser int) string
	account func(person string, n int) string // of the nth guess, while the person signs in
}

// TestSignIn measures how long the right person takes to sign in, and how long a refresh takes, while others guess
// passwords as fast as a flood does. Each flood starts again several times, from other addresses.
func TestSignIn(t *testing.T) {
	r := begin(t, "signin")
	limit := map[string]string{"GOMEMLIMIT": "72MiB"}
	b := enter(t, harness.Private(t, harness.Options{Durable: true, Settings: limit}))
	members := []string{b.product.Demo.Users.Owner.Email, b.product.Demo.Users.Reader.Email}
	others := func(_ string, n int) string { // half of them exist
		if n%2 == 0 {
			return members[n/2%len(members)]
		}
		return fmt.Sprintf("guess-%d@example.org", n)
	}
	hers := func(person string, _ int) string { return person }
	anywhere := func(start, n int) string { return fmt.Sprintf("%d.%d.%d.7", 11+n, 16+start, n) }
	near := func(start, n int) string { return fmt.Sprintf("198.51.%d.%d", start, 1+n) }
	r.line("%d wrong passwords a second from %d addresses, each flood started %d times from new addresses; meanwhile "+
		"a person signs in %d times at each start,", guessesASecond, guessers, startsOf, signInsPerStart)
	r.line("one after the other from an address of their own, and a connector refreshes %.0f times a second. On 429 "+
		"the person does as the page says.", 1/refreshesEvery.Seconds())
	r.line("A new browser has no cookie of an earlier sign-in.\n")
	r.line("| wrong passwords | browser | in within 3 s | median | p99 | slowest | most tries | refresh p50 | p99 | " +
		"authserver busy | Postgres |\n|---|---|---|---|---|---|---|---|---|---|---|")
	starts := 0
	for _, g := range []guessing{
		{"none", nil, nil},
		{"of other accounts, from everywhere", anywhere, others},
		{"of the person's own account, from everywhere", anywhere, hers},
		{"of other accounts, from the person's own /24", near, others},
	} {
		for _, known := range []bool{false, true} {
			b.signInUnder(t, r, g, known, &starts)
		}
	}
	r.write(t)
}

// signInUnder measures one kind of flood and one kind of browser, and writes a row. Each start has another person,
// since an account has 20 checks with priority.
func (b *bench) signInUnder(t *testing.T, r *report, g guessing, known bool, starts *int) {
	t.Helper()
	c := b.newCrowd(t)
	var took []time.Duration
	most, refreshes := 0, make(chan []time.Duration, 1)
	ctx, stop := context.WithCancel(t.Context())
	spent, began := b.account.spent(), time.Now()
	go func() { refreshes <- b.refreshSteadily(ctx, t) }()
	for round := range startsOf {
		if testing.Short() && round > 0 {
			break
		}
		person, jar := b.product.Database.User(t), newJar(t)
		if known {
			c.signIn(t, jar, "192.0.2.77", person)
		}
		*starts++
		start, home := *starts, fmt.Sprintf("198.51.%d.200", *starts)
		flooding, end := context.WithCancel(t.Context())
		var all sync.WaitGroup
		if g.address != nil {
			all.Go(func() {
				c.guess(flooding, func(n int) (string, string) {
					return g.address(start, n%guessers), g.account(person.Email, n)
				})
			})
		}
		for range signInsPerStart {
			browser := jar
			if !known {
				browser = newJar(t)
			}
			within, tries := c.signIn(t, browser, home, person)
			took, most = append(took, within), max(most, tries)
			time.Sleep(betweenSignIns)
		}
		end()
		all.Wait()
	}
	stop()
	refreshed := sample{latencies: slices.Sorted(slices.Values(<-refreshes))}
	busy := func(i int) float64 { return (b.account.spent()[i] - spent[i]).Seconds() / time.Since(began).Seconds() }
	slices.Sort(took)
	signIns := sample{latencies: took}
	soon, _ := slices.BinarySearch(took, signInWithin)
	browser := map[bool]string{true: "known", false: "new"}[known]
	share, p99 := 100*float64(soon)/float64(len(took)), refreshed.percentile(0.99).Seconds()*1e3
	r.line("| %s | %s | %.0f %% | %.2f s | %.2f s | %.2f s | %d | %.1f ms | %.1f ms | %.2f | %.2f |", g.what,
		browser, share, signIns.percentile(0.5).Seconds(), signIns.percentile(0.99).Seconds(),
		took[len(took)-1].Seconds(), most, refreshed.percentile(0.5).Seconds()*1e3, p99, busy(0), busy(1))
	if g.address != nil {
		r.wants("a "+browser+" browser, passwords "+g.what+": in within 3 s", "at least 99 %", share, " %", share >= 99)
		r.wants("refresh beside it, p99", "below 100 ms", p99, " ms", p99 < 100)
	}
}

func newJar(t *testing.T) http.CookieJar {
	t.Helper()
	jar, err := cookiejar.New(nil)
	must(t, err)
	return jar
}

// refreshSteadily refreshes at a moderate rate, however long the responses take, and returns their times.
func (b *bench) refreshSteadily(ctx context.Context, t *testing.T) (took []time.Duration) {
	const connections = 4
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range connections {
		token := b.connector.Connect(t, b.owner).RefreshToken
		all.Go(func() {
			time.Sleep(time.Duration(i) * refreshesEvery)
			tick := time.NewTicker(connections * refreshesEvery)
			defer tick.Stop()
			for ctx.Err() == nil {
				began := time.Now()
				response, err := http.DefaultClient.Do(b.token(b.account, b.connector.RefreshForm(token)))
				if err != nil {
					t.Error(err)
					return
				}
				body, _ := io.ReadAll(response.Body) // without a token, the next refresh fails
				_ = response.Body.Close()
				switch response.StatusCode {
				case http.StatusOK:
					token = refreshTokenIn(body)
				case http.StatusServiceUnavailable: // its time counts, too
				default:
					t.Errorf("a refresh is refused: %d", response.StatusCode)
					return
				}
				mu.Lock()
				took = append(took, time.Since(began))
				mu.Unlock()
				<-tick.C
			}
		})
	}
	all.Wait()
	return took
}

// A crowd sends requests from the gateway's address, so that the addresses that it names in X-Forwarded-For count.
type crowd struct {
	transport *http.Transport
	login     string
}

func (b *bench) newCrowd(t *testing.T) *crowd {
	t.Helper()
	at, err := url.Parse(b.account.url)
	must(t, err)
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(gateway.SourceAddress)}}
	transport := &http.Transport{
		MaxIdleConnsPerHost: 4 * guessers,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, at.Host)
		},
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &crowd{transport, b.product.AppURL + "/login"}
}

// post sends the form of the sign-in page.
func (c *crowd) post(
	ctx context.Context, jar http.CookieJar, from, email, password string,
) (*http.Response, error) {
	client := http.Client{
		Transport:     c.transport,
		Jar:           jar,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	request := post(c.login, url.Values{"email": {email}, "password": {password}},
		http.Header{"X-Forwarded-For": {from}})
	response, err := client.Do(request.WithContext(ctx))
	if err == nil {
		_, err = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
	}
	return response, err
}

// guess sends wrong passwords at a steady rate until ctx ends, whether or not they are answered.
func (c *crowd) guess(ctx context.Context, next func(n int) (from, email string)) {
	var all sync.WaitGroup
	tick := time.NewTicker(time.Second / guessesASecond)
	defer tick.Stop()
	for n := 0; ctx.Err() == nil; n++ {
		all.Go(func() {
			from, email := next(n)
			_, _ = c.post(ctx, nil, from, email, "wrong "+strconv.Itoa(n)) // a guess without an answer is as good
		})
		<-tick.C
	}
	all.Wait()
}

// signIn signs the person in, and tries again when the page says so. It returns how long it took, and the tries.
func (c *crowd) signIn(
	t *testing.T, jar http.CookieJar, from string, person demo.User,
) (took time.Duration, tries int) {
	t.Helper()
	began := time.Now()
	for {
		tries++
		response, err := c.post(t.Context(), jar, from, person.Email, person.Password)
		must(t, err)
		wait, _ := strconv.Atoi(response.Header.Get("Retry-After"))
		took = time.Since(began)
		switch {
		case response.StatusCode == http.StatusSeeOther, took > givesUpAfter:
			return took, tries
		case response.StatusCode != http.StatusTooManyRequests || response.Header.Get("RateLimit") != "":
			t.Fatalf("the right person is refused: %d", response.StatusCode)
		}
		time.Sleep(time.Duration(wait) * time.Second)
	}
}
