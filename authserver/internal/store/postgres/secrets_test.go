package postgres_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/shared/perm"
	"github.com/almonerhq/almoner/shared/standing"
)

const liveSecrets = `select count(*) from account.client_secrets where client_id = $1 and (expires_at is null or expires_at > now())`

func (l *ledger) liveSecrets(id uuid.UUID) (n int) {
	l.Helper()
	if err := l.world.Owner.QueryRow(l.Context(), liveSecrets, id).Scan(&n); err != nil {
		l.Fatal(err)
	}
	return n
}

// secretHash is the n-th of hashes that are all different.
func secretHash(n int) []byte {
	return binary.BigEndian.AppendUint64(bytes.Repeat([]byte{7}, 24), uint64(n))
}

func replaced(id uuid.UUID) audit.Event {
	return audit.Event{Actor: "test", Action: "client.secret_replaced", Subject: "client:" + id.String()}
}

// Any number of replacements at the same time leave the newest secret and the one before it.
func TestReplaceSecret_LeavesTwoHoweverManyReplaceAtOnce(t *testing.T) {
	l := newLedger(t)
	app, _ := l.world.Confidential(perm.ProgrammesRead)
	for i := range 20 { // as an earlier release left them
		l.world.Exec(
			`insert into account.client_secrets (client_id, hash, expires_at) values ($1, $2, now() + interval '1 hour')`,
			app.ID,
			secretHash(1000+i),
		)
	}
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			if err := l.ReplaceSecret(t.Context(), l.world.WorkspaceID, app.ID, secretHash(i), 24*time.Hour, replaced(app.ID)); err != nil {
				t.Error(err)
			}
			if n := l.liveSecrets(app.ID); n > 2 {
				t.Errorf("%d secrets are live", n)
			}
		})
	}
	all.Wait()
	for i, overlap := range []time.Duration{24 * time.Hour, 24 * time.Hour, 0} {
		if err := l.ReplaceSecret(t.Context(), l.world.WorkspaceID, app.ID, secretHash(50+i), overlap, replaced(app.ID)); err != nil {
			t.Fatal(err)
		}
		for hash, lives := range map[int]bool{50 + i: true, 49 + i: i > 0 && overlap > 0, 48 + i: false} {
			c, err := l.ClientWithSecret(t.Context(), app.ID, secretHash(hash))
			if err != nil || (len(c.Secrets) == 1) != lives {
				t.Errorf("after replacement %d, secret %d: %d found %v", i, hash, len(c.Secrets), err)
			}
		}
	}
	if n := l.liveSecrets(app.ID); n != 1 {
		t.Errorf("%d secrets are live after the old ones were ended", n)
	}
}

// A client with thousands of live secrets costs the statement that it shares with others no more than any other client:
// of all the hashes, the presented one alone is read.
func TestSharedStatements_ReadThePresentedSecretAlone(t *testing.T) {
	l := newLedger(t)
	app, _ := l.world.Confidential(perm.ProgrammesRead)
	l.world.Exec(`insert into account.client_secrets (client_id, hash)
		select $1, sha256(n::text::bytea) from generate_series(1, 6000) n`, app.ID)
	good := secretHash(1)
	l.world.Exec(`insert into account.client_secrets (client_id, hash) values ($1, $2)`, app.ID, good)
	l.world.Exec(
		`insert into account.client_secrets (client_id, hash, expires_at) values ($1, $2, now())`,
		app.ID,
		secretHash(2),
	)
	together(64, func(i int) {
		asked := [][]byte{good, secretHash(2), secretHash(3), nil}[i%4]
		check := func(how string, found [][]byte, err error) {
			if want := i%4 == 0; err != nil || (len(found) == 1) != want || (want && !bytes.Equal(found[0], good)) {
				t.Errorf("%s with %x: %d hashes were read, %v", how, asked, len(found), err)
			}
		}
		facts, err := l.FactsWithSecret(t.Context(), app.ID, l.grant.ID, asked)
		check("facts", facts.Client.Secrets, err)
		caller, _, _, err := l.Introspection(t.Context(), app.ID, asked, standing.Query{GrantID: l.grant.ID})
		check("introspection", caller.Secrets, err)
		c, err := l.ClientWithSecret(t.Context(), app.ID, asked)
		check("client", c.Secrets, err)
	})
	facts, err := l.Facts(t.Context(), app.ID, uuid.Nil)
	if err != nil || facts.Client.Secrets != nil {
		t.Errorf("facts for a caller that checks no secret: %d hashes, %v", len(facts.Client.Secrets), err)
	}
	if c, err := l.RecentClient(t.Context(), app.ID); err != nil || len(c.Secrets) != 2 {
		t.Errorf("a recent client: %d hashes, %v", len(c.Secrets), err)
	}
	all, err := l.Clients(t.Context(), l.world.WorkspaceID)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if len(c.Secrets) != 0 {
			t.Errorf("%d hashes are read for a list", len(c.Secrets))
		}
	}
}

// The migration leaves each client its current secret and the one that ends last.
func TestMigration_EndsSurplusSecrets(t *testing.T) {
	l := newLedger(t)
	busy, _ := l.world.Confidential(perm.ProgrammesRead) // has one secret, which is the current one
	calm, _ := l.world.Confidential(perm.ProgrammesRead)
	l.world.Exec(`insert into account.client_secrets (client_id, hash, expires_at)
		select $1, sha256(n::text::bytea), now() + n * interval '1 second' from generate_series(1, 3000) n`, busy.ID)
	last := secretHash(9)
	l.world.Exec(
		`insert into account.client_secrets (client_id, hash, expires_at) values ($1, $2, now() + interval '24 hours')`,
		busy.ID,
		last,
	)
	text, err := postgres.Migrations.ReadFile("migrations/00120_two_secrets.sql")
	if err != nil {
		t.Fatal(err)
	}
	up, _, _ := strings.Cut(string(text), "-- +goose Down")
	if _, err := l.world.Owner.Exec(context.Background(), up); err != nil {
		t.Fatal(err)
	}
	for _, kept := range []struct {
		id   uuid.UUID
		hash []byte
		live int
	}{{busy.ID, busy.Secrets[0], 2}, {busy.ID, last, 2}, {calm.ID, calm.Secrets[0], 1}} {
		c, err := l.ClientWithSecret(t.Context(), kept.id, kept.hash)
		if n := l.liveSecrets(kept.id); err != nil || len(c.Secrets) != 1 || n != kept.live {
			t.Errorf("%d of the secret, %d in all, %v", len(c.Secrets), n, err)
		}
	}
}
