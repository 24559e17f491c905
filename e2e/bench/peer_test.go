package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

const (
	peerName   = "node-oidc-provider"
	npmWithin  = 3 * time.Minute
	peerFolder = "../../.almoner/bench-peer" // npm's packages are stored there
)

// A peer is a running node-oidc-provider (peer/server.mjs) with its own Redis, which is as durable as ours.
type peer struct {
	target
	minted minted
	codes  chan string
	chains chains
}

// minted is the response of peer/server.mjs to /bench/mint.
type minted struct {
	Codes                      []string
	Verifier, Opaque, Resource string
	RedirectURI, ClientID      string
	ServiceID, ServiceSecret   string
}

// startPeer starts the peer. It returns nil and reports why if Node or its packages are not available.
func startPeer(t *testing.T, r *report) *peer {
	t.Helper()
	folder, err := installPeer(t.Context())
	if err != nil {
		r.line("**Without %s**: %v.\n", peerName, err)
		return nil
	}
	redis := freshRedis(t)
	command := exec.CommandContext(t.Context(), "node", "server.mjs")
	command.Dir = folder
	command.Env = append(os.Environ(), "NODE_ENV=production", "NODE_NO_WARNINGS=1", "REDIS_URL="+redis.URL)
	address, pid := startServer(t, command)
	version, _ := exec.CommandContext(t.Context(), "node", "--version").Output()
	r.line("The peer is %s %s on Node %s, with a Redis of its own.\n", peerName, peerVersion(t),
		bytes.TrimSpace(version))
	p := &peer{
		target: target{name: peerName, url: address, pids: []int{pid}, redis: []int{redis.PID()}},
		codes:  make(chan string, maxCodes),
	}
	p.mint(t, 1)
	return p
}

// freshRedis starts a Redis with AOF everysec, like every other Redis here.
func freshRedis(t *testing.T) *localstore.Redis {
	t.Helper()
	return harness.Servers(t, func(ctx context.Context, options localstore.Options) (*localstore.Redis, error) {
		options.Volatile = false
		return localstore.StartRedis(ctx, options)
	})
}

// installPeer installs the peer and the packages of its lock file in a folder that is reused.
func installPeer(ctx context.Context) (string, error) {
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			return "", fmt.Errorf("%s is not installed", program)
		}
	}
	folder, err := filepath.Abs(peerFolder)
	if err == nil {
		err = os.MkdirAll(folder, 0o755)
	}
	if err != nil {
		return "", err
	}
	kept, _ := os.ReadFile(filepath.Join(folder, "installed.json")) // none the first time
	var lock []byte
	for _, name := range []string{"package.json", "server.mjs", "adapter.mjs", "package-lock.json"} {
		if lock, err = os.ReadFile(filepath.Join("peer", name)); err == nil {
			err = os.WriteFile(filepath.Join(folder, name), lock, 0o644)
		}
		if err != nil {
			return "", err
		}
	}
	if bytes.Equal(kept, lock) {
		return folder, nil
	}
	ctx, cancel := context.WithTimeout(ctx, npmWithin)
	defer cancel()
	command := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
	command.Dir, command.WaitDelay = folder, time.Second
	if out, err := command.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%s\n", out)
		return "", fmt.Errorf("its packages did not come (%w)", err)
	}
	return folder, os.WriteFile(filepath.Join(folder, "installed.json"), lock, 0o644)
}

func peerVersion(t *testing.T) string {
	t.Helper()
	var manifest struct{ Dependencies map[string]string }
	content, err := os.ReadFile("peer/package.json")
	if err == nil {
		err = json.Unmarshal(content, &manifest)
	}
	must(t, err)
	return manifest.Dependencies["oidc-provider"]
}

// mint makes the peer create codes, as after consent.
func (p *peer) mint(t testing.TB, count int) {
	t.Helper()
	response, err := http.Get(fmt.Sprintf("%s/bench/mint?count=%d", p.url, count))
	decode(t, response, err, &p.minted)
	if len(p.minted.Codes) != count {
		t.Fatalf("%s creates no codes", peerName)
	}
}

// decode decodes the JSON of a response of the peer.
func decode(t testing.TB, response *http.Response, err error, into any) {
	t.Helper()
	must(t, err)
	defer func() { _ = response.Body.Close() }()
	must(t, json.NewDecoder(response.Body).Decode(into))
}

// fill replaces the codes with new ones.
func (p *peer) fill(t testing.TB, connections int) {
	t.Helper()
	drain(p.codes)
	p.mint(t, codesAt(connections))
	for _, code := range p.minted.Codes {
		p.codes <- code
	}
}

func (p *peer) codeForm(code string) url.Values {
	return url.Values{
		"grant_type": {"authorization_code"}, "client_id": {p.minted.ClientID}, "code": {code},
		"code_verifier": {p.minted.Verifier}, "redirect_uri": {p.minted.RedirectURI}, "resource": {p.minted.Resource},
	}
}

// connect exchanges a code for the first refresh token of a connection.
func (p *peer) connect(t testing.TB) string {
	t.Helper()
	p.mint(t, 1)
	response, err := http.PostForm(p.url+"/token", p.codeForm(p.minted.Codes[0]))
	var answer struct {
		RefreshToken string `json:"refresh_token"`
	}
	decode(t, response, err, &answer)
	if answer.RefreshToken == "" {
		t.Fatalf("%s returns no refresh token: %d", peerName, response.StatusCode)
	}
	return answer.RefreshToken
}

func (p *peer) loads(t *testing.T) []load {
	exchange := oncePer(p.codes, func(code string) *http.Request {
		return post(p.url+"/token", p.codeForm(code), http.Header{})
	})
	refresh := p.chains.refresh(func() string { return p.connect(t) }, func(token string) *http.Request {
		return post(p.url+"/token", url.Values{
			"grant_type": {"refresh_token"}, "client_id": {p.minted.ClientID}, "refresh_token": {token},
			"resource": {p.minted.Resource},
		}, http.Header{})
	})
	basic := http.Header{"Authorization": {harness.Basic(p.minted.ServiceID, p.minted.ServiceSecret)}}
	token := url.Values{"token": {p.minted.Opaque}}
	introspect := constant(func() *http.Request { return post(p.url+"/token/introspection", token, basic) })
	return []load{
		{what: codeExchange, at: p.target, worker: exchange, before: p.fill},
		{what: refreshing, at: p.target, worker: refresh},
		{what: introspection, at: p.target, worker: introspect},
	}
}
