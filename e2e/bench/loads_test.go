package bench

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/deploy/local/gateway"
	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// These are the loads that are refused, by the mistake in them, and the form submission.
const (
	garbage     = "garbage refused"
	badMAC      = "token with a bad MAC refused"
	wrongSecret = "wrong client secret refused"
	wrongToken  = "well-formed wrong token refused"
	submission  = "embedded form submission"
)

func listOf(at target, workspace, token, query string) newWorker {
	return func(int) (makeRequest, takeBody) {
		return func() *http.Request {
				// The arguments are constant, so NewRequest cannot fail.
				request, _ := http.NewRequest(http.MethodGet, at.url+harness.ListPath+query, nil)
				request.Header.Set("X-Tenant-Id", workspace)
				request.Header.Set("Authorization", "Bearer "+token)
				return request
			}, func(body []byte) error {
				if !bytes.Contains(body, []byte(`"count":50,`)) {
					return fmt.Errorf("%s does not return a full page", at.name)
				}
				return nil
			}
	}
}

// refusable is the number of clients and grants that share the refusals, so that none is throttled.
const refusable = 256

// wrong returns loads with credentials that are refused, each for another reason.
func (b *bench) wrong(t *testing.T) []load {
	t.Helper()
	ws := b.product.NewWorkspace(t)
	confidential := ws.Confidential(t, "client_secret_post", harness.ReadProgrammes)
	apps, connectors := b.copies(t, confidential.ClientID), b.copies(t, b.connector.ClientID)
	var tokens []string
	for range refusable { // tokens of ended grants
		connected := b.connector.Connect(t, b.owner)
		b.connector.Revoke(t, connected.RefreshToken).Wants(t, http.StatusOK)
		tokens = append(tokens, connected.RefreshToken)
	}
	var turn atomic.Int64
	next := func(of []string) string { return of[int(turn.Add(1))%len(of)] }
	form := func(client, token string) url.Values {
		out := b.connector.RefreshForm(token)
		out.Set("client_id", client)
		return out
	}
	refused := func(what, because string, make func() url.Values) load {
		worker := func(int) (makeRequest, takeBody) {
			return func() *http.Request { return b.token(b.account, make()) }, func(body []byte) error {
				if !bytes.Contains(body, []byte(`"error":"`+because+`"`)) {
					return fmt.Errorf("%s for another reason: %s", what, body)
				}
				return nil
			}
		}
		return load{what: what, at: b.account, worker: worker, statuses: []int{http.StatusBadRequest}}
	}
	owner := b.product.Person(t, ws.Owner)
	secret, err := credential.ClientSecret.New(rand.Reader) // of no client
	must(t, err)
	code := confidential.Form(confidential.Code(t, owner))
	code.Set("client_secret", secret.Reveal())
	return []load{
		refused(garbage, "invalid_grant", func() url.Values { return form(next(connectors), random()) }),
		refused(badMAC, "invalid_grant", func() url.Values { return form(next(connectors), "alm_rt_"+forged()) }),
		refused(wrongSecret, "invalid_client", func() url.Values {
			out := maps.Clone(code)
			out.Set("client_id", next(apps))
			return out
		}),
		refused(wrongToken, "invalid_grant", func() url.Values { return form(b.connector.ClientID, next(tokens)) }),
	}
}

// copies creates refusable copies of a client.
func (b *bench) copies(t *testing.T, client string) []string {
	t.Helper()
	ids := make([]string, refusable)
	for i := range ids {
		ids[i] = uuid.NewString()
	}
	b.product.Database.Exec(t, `insert into account.oauth_clients (id, kind, tenant_id, name, redirect_uris,
			required_permissions, connector_platform, resource, token_endpoint_auth_method, created_by)
		select new, kind, tenant_id, name, redirect_uris,
			required_permissions, connector_platform, resource, token_endpoint_auth_method, created_by
		from account.oauth_clients, unnest($2::uuid[]) new where id = $1`, client, ids)
	return ids
}

// forged returns a well-formed token that authserver has not issued.
func forged() string {
	raw := make([]byte, 84) // grant ID, generation, random part, MAC
	_, _ = rand.Read(raw)   // never fails (crypto/rand)
	return base64.RawURLEncoding.EncodeToString(raw)
}

const openers = 4 // connections that open forms beforehand

// submissions submits forms, each from another person at another X-Forwarded-For address. The time and the processors
// that the worker needs to process the submissions belong to them.
func (b *bench) submissions(t *testing.T) load {
	form := b.product.Demo.Engage
	path := "/v1/engage/public/forms/" + form.EmbedKey
	var sender atomic.Uint32
	ask := func(method, path string, body []byte) *http.Request {
		// The arguments are constant, so NewRequest cannot fail.
		request, _ := http.NewRequest(method, b.lists.url+path, bytes.NewReader(body))
		request.Header.Set("Origin", form.AllowedOrigin)
		request.Header.Set("Content-Type", "application/json")
		n := sender.Add(1)
		request.Header.Set("X-Forwarded-For", fmt.Sprintf("10.%d.%d.%d", n>>16&255, n>>8&255, n&255))
		return request
	}
	opened := load{
		what: "form opened",
		at:   b.lists,
		worker: func(int) (makeRequest, takeBody) {
			return func() *http.Request { return ask(http.MethodGet, path, nil) }, func(body []byte) error {
				var answer struct{ SubmissionToken string }
				err := json.Unmarshal(body, &answer)
				if err == nil && len(b.openForms) < maxCodes {
					b.openForms <- answer.SubmissionToken
				}
				return err
			}
		},
	}
	send := oncePer(b.openForms, func(token string) *http.Request {
		body, _ := json.Marshal(map[string]any{"submissionToken": token, "answers": map[string]any{ // strings only
			"name": "Ada Okafor", "email": fmt.Sprintf("ada%d@example.org", sender.Load()), "help": "In the garden",
			"privacy": true,
		}})
		return ask(http.MethodPost, path+"/submissions", body)
	})
	return load{
		what:     submission,
		at:       b.lists,
		worker:   send,
		statuses: []int{http.StatusAccepted},
		from:     &net.TCPAddr{IP: net.ParseIP(gateway.SourceAddress)},
		before: func(t testing.TB, connections int) {
			for len(b.openForms) < codesAt(connections) {
				opened.run(t, openers, 200*time.Millisecond)
			}
		},
		after: func(t testing.TB) { b.allProcessed(t) },
	}
}

// allProcessed waits until the worker has processed all submissions.
func (b *bench) allProcessed(t testing.TB) {
	t.Helper()
	await.True(t, "all submissions are processed", func() bool {
		return b.product.Database.Count(t, `select count(*) from resource.submissions where status = 'accepted'`) == 0
	})
}
