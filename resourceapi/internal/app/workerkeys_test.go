package app

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/pem"
	"log/slog"
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

	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres"
	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres/postgrestest"
)

// masterKey returns a new value of ALMONER_KEYS.
func masterKey() string {
	return base64.RawURLEncoding.EncodeToString([]byte(rand.Text() + rand.Text())[:32])
}

// startWorker runs a worker process, which reads its keys from the file and trusts the receiver.
func startWorker(t *testing.T, s *service, r *receiver, keys, file string) {
	t.Helper()
	if err := postgres.MigrateJobs(t.Context(), s.Database.Owner); err != nil {
		t.Fatal(err)
	}
	config := configFor(s.Database.Resourceapi, newAuthserver(t, s.key).URL)
	config.Keys = credential.Secret(keys)
	config.reading.Values = []envconf.Value{{Setting: "ALMONER_KEYS", From: envconf.FromFile, Path: file}}
	config.WebhookCA = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate().Raw}))
	worker, err := New(t.Context(), config, slog.New(slog.NewJSONHandler(s.log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := worker.Work(ctx, func(net.Addr) {}); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		stop()
		running.Wait()
		worker.Close()
	})
}

// A worker follows its file of keys: it reads a secret that another process sealed with a key that was added later.
func TestWorker_FollowsFileOfKeys(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, nil)
	s := &service{Fixture: postgrestest.New(t), t: t, key: newKey(t, "key-1"), log: &lockedBuffer{}}
	old, fresh, file := masterKey(), masterKey(), filepath.Join(t.TempDir(), "keys")
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(old)
	startWorker(t, s, r, old, file)
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
