package standing

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

func TestUsageRecorder_UpdatesLastUsed(t *testing.T) {
	database := testkit.NewDatabase(t)
	owner, err := pgx.Connect(t.Context(), database.Owner)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = owner.Close(context.Background()) }()
	pat, unused, grant := uuid.New(), uuid.New(), uuid.New()
	for _, statement := range []string{
		`insert into account.organisations (id, name) values ('00000000-0000-4000-8000-000000000001', 'o')`,
		`insert into account.tenants (id, organisation_id, name)
			values ('00000000-0000-4000-8000-000000000002', '00000000-0000-4000-8000-000000000001', 't')`,
		`insert into account.users (id, email, name) values ('00000000-0000-4000-8000-000000000003', 'a@b.c', 'u')`,
		`insert into account.oauth_clients (id, kind, tenant_id, name, redirect_uris, required_permissions,
			token_endpoint_auth_method)
			values ('00000000-0000-4000-8000-000000000004', 'confidential', '00000000-0000-4000-8000-000000000002',
			'c', '{}', '{}', 'client_secret_json')`,
		`insert into account.personal_access_tokens (id, hash, user_id, tenant_id, name, permissions, expires_at)
			select id, sha256(id::text::bytea), '00000000-0000-4000-8000-000000000003',
			'00000000-0000-4000-8000-000000000002', 'p', '{}', now() + interval '1 day'
			from unnest(array['` + pat.String() + `'::uuid, '` + unused.String() + `'::uuid]) as id`,
		`insert into account.grants (id, kind, client_id, user_id, tenant_id, permissions, resource, state, ends_at)
			values ('` + grant.String() + `', 'confidential', '00000000-0000-4000-8000-000000000004',
			'00000000-0000-4000-8000-000000000003', '00000000-0000-4000-8000-000000000002', '{}', 'r', 'active',
			now() + interval '1 day')`,
	} {
		if _, err := owner.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	for service, url := range map[string]string{
		"authserver":  database.Authserver,
		"resourceapi": database.Resourceapi,
	} {
		t.Run(service, func(t *testing.T) {
			if _, err := owner.Exec(t.Context(), "delete from account.token_uses; "+
				"update account.grants set last_used_at = null"); err != nil {
				t.Fatal(err)
			}
			pool, err := pgxpool.New(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			defer pool.Close()
			recorder := NewUsageRecorder(pool, slog.New(slog.DiscardHandler))
			for range 3 {
				for id, kind := range map[uuid.UUID]string{pat: PersonalAccessToken, grant: Connector} {
					recorder.Record(Standing{
						CredentialID:        id,
						Kind:                kind,
						CredentialWorkspace: uuid.MustParse("00000000-0000-4000-8000-000000000002"),
					})
				}
			}
			recorder.Close()
			var used string
			err = owner.QueryRow(t.Context(), `
				select string_agg(id::text, ' ' order by id::text) from (
					select token_id as id, used_at as last_used_at from account.token_uses
					where tenant_id = '00000000-0000-4000-8000-000000000002'
					union all select id, last_used_at from account.grants) as c
				where last_used_at > now() - interval '1 minute'`).Scan(&used)
			if err != nil || !strings.Contains(used, pat.String()) || !strings.Contains(used, grant.String()) ||
				strings.Contains(used, unused.String()) {
				t.Errorf("%s, %v", used, err)
			}
		})
	}
}

// A stuckStore blocks like a failing database, and records its calls.
type stuckStore struct {
	release chan struct{}
	called  chan struct{} // receives one value at the first call
	mu      sync.Mutex
	batches [][]uuid.UUID
}

func (s *stuckStore) Exec(ctx context.Context, _ string, args ...any) (pgconn.CommandTag, error) {
	select {
	case s.called <- struct{}{}:
	default:
	}
	select {
	case <-s.release:
	case <-ctx.Done():
		return pgconn.CommandTag{}, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batches = append(s.batches, args[0].([]uuid.UUID))
	return pgconn.CommandTag{}, errors.New("not taken")
}

func TestUsageRecorder_DoesNotBlockAndIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &stuckStore{release: make(chan struct{}), called: make(chan struct{}, 1)}
		recorder := NewUsageRecorder(store, slog.New(slog.DiscardHandler))
		recorder.Record(Standing{CredentialID: uuid.New(), Kind: PersonalAccessToken})
		<-store.called             // the first flush is blocked now
		for range 2 * noteAtMost { // while nothing is stored
			recorder.Record(Standing{CredentialID: uuid.New(), Kind: PersonalAccessToken})
		}
		close(store.release)
		recorder.Close()
		store.mu.Lock()
		defer store.mu.Unlock()
		for i, batch := range store.batches {
			t.Logf("batch %d: %d credentials", i, len(batch))
			if len(batch) > noteAtMost {
				t.Errorf("a batch has %d credentials", len(batch))
			}
		}
		if len(store.batches) != 2 || len(store.batches[1]) != noteAtMost {
			t.Errorf("%d batches", len(store.batches))
		}
	})
}
