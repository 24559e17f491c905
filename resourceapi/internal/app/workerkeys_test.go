package app

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/uuid"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/almonerhq/almoner/shared/config/envconf"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/webhook"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/crypt/seal"
)

// newMasterKey returns a new value of ALMONER_KEYS.
func newMasterKey() string {
	return base64.RawURLEncoding.EncodeToString([]byte(rand.Text() + rand.Text())[:32])
}

// work runs the App as a worker process until the test ends. It returns its address, if it has one, and how to stop it.
func (s *service) work(worker *App) (address <-chan string, stop func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	listening := make(chan string, 1)
	var running sync.WaitGroup
	running.Go(func() {
		err := worker.Work(ctx, func(address net.Addr) { listening <- "http://" + address.String() })
		if err != nil {
			s.t.Error(err)
		}
	})
	stop = func() { cancel(); running.Wait() }
	s.t.Cleanup(stop)
	return listening, stop
}

// A worker follows its file of keys: it reads a secret that another process sealed with a key that was added later.
func TestWorker_FollowsFileOfKeys(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, nil)
	s := ownService(t, trustsReceivers)
	old, fresh, file := newMasterKey(), newMasterKey(), filepath.Join(t.TempDir(), "keys")
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(old)
	s.work(s.build(func(c *Config) {
		c.Keys = credential.Secret(old)
		c.reading.Values = []envconf.Value{{Setting: "ALMONER_KEYS", From: envconf.FromFile, Path: file}}
	}))
	workspaceID, user := s.member(perm.AccountAPIAccess, perm.ProgrammesRead)
	master, err := seal.ParseKeys(credential.Secret(fresh))
	if err != nil {
		t.Fatal(err)
	}
	sealing, err := webhook.NewKeys(master)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := webhook.NewSecret(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	id := uuid.New()
	sealed, err := webhook.Seal(sealing.Public(), id, secret)
	if err != nil {
		t.Fatal(err)
	}
	s.Exec(`insert into account.webhooks (id, tenant_id, user_id, url, types, secret, secret_key, position, created_at)
		values ($1, $2, $3, $4, '{programme.created}', $5, $6, 0, now())`,
		id, workspaceID, user, r.URL, sealed.Secret, sealed.Key)
	s.Programmes(workspaceID, 1)
	within(t, "an attempt without the key", s.failures(1))
	if got := r.all(); len(got) != 0 {
		t.Fatalf("%d deliveries without the key", len(got))
	}
	write(fresh + "," + old)
	within(t, "the delivery with the new key", func() bool {
		s.retryNow()
		return len(r.all()) == 1
	})
	verifier, err := standardwebhooks.NewWebhook(secret.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	if got := r.all()[0]; verifier.Verify([]byte(got.Body), got.Header) != nil {
		t.Error("the delivery is not signed with the secret")
	}
}
