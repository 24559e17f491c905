package standing

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

var must = testkit.Must

func TestEffective_IsGrantedAndHeldWhileUsable(t *testing.T) {
	granted := perm.NewSet(perm.ProgrammesRead, perm.ProgrammesWrite)
	held := perm.NewSet(perm.ProgrammesRead, perm.EngageReadForms)
	both := perm.NewSet(perm.ProgrammesRead)
	for name, c := range map[string]struct {
		change func(s *Standing)
		want   perm.Set
	}{
		"usable":                      {func(*Standing) {}, both},
		"ended":                       {func(s *Standing) { s.State = "revoked" }, nil},
		"state unknown":               {func(s *Standing) { s.State = "" }, nil},
		"no member":                   {func(s *Standing) { s.Member = false }, nil},
		"connector, connectors off":   {func(s *Standing) { s.Kind, s.LLMIntegration = Connector, false }, nil},
		"connector, connectors on":    {func(s *Standing) { s.Kind = Connector }, both},
		"application, connectors off": {func(s *Standing) { s.LLMIntegration = false }, both},
		"nothing granted":             {func(s *Standing) { s.CredentialPermissions = nil }, nil},
		"nothing held":                {func(s *Standing) { s.MemberPermissions = nil }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := Standing{
				Kind:                  Confidential,
				State:                 Active,
				Member:                true,
				LLMIntegration:        true,
				CredentialPermissions: granted,
				MemberPermissions:     held,
			}
			c.change(&s)
			if got := s.Effective(); !slices.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

// The claims of an access token are checked against the grant that it names, each of them.
func TestBacks_RefusesEachClaimOfAnotherGrant(t *testing.T) {
	client, resource := uuid.New(), "https://api.example.org/v1"
	s := Standing{
		CredentialID:        uuid.New(),
		UserID:              uuid.New(),
		ClientID:            &client,
		CredentialWorkspace: uuid.New(),
		Resource:            &resource,
	}
	for name, change := range map[string]func(s *Standing, c *accesstoken.Claims){
		"":                 func(*Standing, *accesstoken.Claims) {},
		"client":           func(_ *Standing, c *accesstoken.Claims) { c.ClientID = uuid.NewString() },
		"client, no id":    func(_ *Standing, c *accesstoken.Claims) { c.ClientID = "x" },
		"user":             func(_ *Standing, c *accesstoken.Claims) { c.Subject = uuid.New() },
		"workspace":        func(_ *Standing, c *accesstoken.Claims) { c.WorkspaceID = uuid.New() },
		"audience":         func(_ *Standing, c *accesstoken.Claims) { c.Audience += "/" },
		"grant":            func(_ *Standing, c *accesstoken.Claims) { c.GrantID = uuid.New() },
		"personal token":   func(s *Standing, _ *accesstoken.Claims) { s.ClientID = nil },
		"without resource": func(s *Standing, _ *accesstoken.Claims) { s.Resource = nil },
	} {
		t.Run(name, func(t *testing.T) {
			changed := s
			claims := accesstoken.Claims{
				ClientID:    client.String(),
				Subject:     s.UserID,
				WorkspaceID: s.CredentialWorkspace,
				Audience:    resource,
				GrantID:     s.CredentialID,
			}
			change(&changed, &claims)
			if got, want := changed.Backs(claims), name == ""; got != want {
				t.Errorf("%t, want %t", got, want)
			}
		})
	}
}

// A seeded database has a workspace with a user, who holds every permission, a connector of MCP with a grant, and a
// personal access token.
type seeded struct {
	testkit.Database
	owner                                 *pgx.Conn
	workspaceID, user, client, grant, pat uuid.UUID
}

func seed(t *testing.T) seeded {
	t.Helper()
	s := seeded{
		Database:    testkit.NewDatabase(t),
		workspaceID: uuid.New(),
		user:        uuid.New(),
		client:      uuid.New(),
		grant:       uuid.New(),
		pat:         uuid.New(),
	}
	s.owner = testkit.Connect(t, s.Owner)
	all := perm.FullSet().Strings()
	s.exec(t, `insert into account.organisations (id, name) values ($1, 'o')`, s.workspaceID)
	s.exec(t, `insert into account.tenants (id, organisation_id, name) values ($1, $1, 't')`, s.workspaceID)
	s.exec(t, `insert into account.users (id, email, name) values ($1, 'a@b.c', 'Ada')`, s.user)
	s.exec(t, `insert into account.memberships (tenant_id, user_id, permissions) values ($1, $2, $3)`, s.workspaceID,
		s.user, all)
	s.exec(t, `insert into account.oauth_clients (id, kind, tenant_id, name, redirect_uris, required_permissions,
		connector_platform, resource, token_endpoint_auth_method)
		values ($1, 'connector', $2, 'c', '{}', '{}', 'claude', 'https://api.example.org/mcp', 'none')`, s.client,
		s.workspaceID)
	s.exec(t, `insert into account.grants (id, kind, client_id, user_id, tenant_id, permissions, resource, state,
		ends_at)
		values ($1, 'connector', $2, $3, $4, $5, 'https://api.example.org/mcp', 'active', now() + interval '1 day')`,
		s.grant, s.client, s.user, s.workspaceID, all)
	s.token(t, s.pat)
	return s
}

func (s seeded) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := s.owner.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// token stores a personal access token, whose hash is that of its id.
func (s seeded) token(t *testing.T, id uuid.UUID) {
	t.Helper()
	s.exec(t, `insert into account.personal_access_tokens (id, hash, user_id, tenant_id, name, permissions, expires_at)
		values ($1, $2, $3, $4, 'p', $5, now() + interval '1 day')`, id, credential.Hash(id.String()), s.user,
		s.workspaceID, perm.FullSet().Strings())
}

func TestRead_AnswersForCredentialInWorkspace(t *testing.T) {
	s := seed(t)
	workspaceID, other, user, grant := s.workspaceID, uuid.New(), s.user, s.grant
	secret := credential.Hash(s.pat.String())
	all := perm.FullSet()
	s.exec(t, `insert into account.tenants (id, organisation_id, name) values ($1, $2, 'u')`, other, workspaceID)
	s.exec(t, `insert into account.tenant_features values ($1, 'llm_integration', true)`, workspaceID)
	s.exec(t, `insert into account.tenant_modules values ($1, 'programmes', true, false)`, workspaceID)
	s.exec(t, `insert into account.signing_keys (kid, public_jwk, private_sealed, state)
		values ('k', '{}', '', 'current')`)
	reader := testkit.Connect(t, s.Resourceapi)
	mcp := all.Usable("https://api.example.org/mcp")
	ofGrant := Query{GrantID: grant, GrantIn: workspaceID, KeyID: "k"}
	with := func(change func(q *Query)) Query { q := ofGrant; change(&q); return q }
	for name, c := range map[string]struct {
		query     Query
		state     string // "" for an unknown credential
		effective perm.Set
		module    [2]bool // enabled, provisioned
	}{
		"grant":                    {query: ofGrant, state: Active, effective: mcp},
		"grant, key removed":       {query: with(func(q *Query) { q.KeyID = "old" }), state: "key_removed"},
		"grant, no key":            {query: with(func(q *Query) { q.KeyID = "" }), state: "key_removed"},
		"grant of other workspace": {query: with(func(q *Query) { q.GrantIn = other })},
		"grant in other workspace": {query: with(func(q *Query) { q.WorkspaceID = other }), state: Active},
		"grant, module": {
			query:     with(func(q *Query) { q.Module = "programmes" }),
			state:     Active,
			effective: mcp,
			module:    [2]bool{true, false},
		},
		"token":                     {query: Query{PATHash: secret}, state: Active, effective: all},
		"token in other workspace":  {query: Query{PATHash: secret, WorkspaceID: other}, state: Active},
		"unknown token":             {query: Query{PATHash: []byte("another")}},
		"unknown token and a grant": {query: with(func(q *Query) { q.PATHash = []byte("another") })},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Read(t.Context(), reader, c.query)
			if c.state == "" {
				if !errors.Is(err, ErrUnknown) {
					t.Errorf("%+v, %v, want ErrUnknown", got, err)
				}
				return
			}
			if err != nil || got.State != c.state || got.UserID != user || got.ModuleEnabled != c.module[0] ||
				got.ModuleProvisioned != c.module[1] || !slices.Equal(got.Effective(), c.effective) {
				t.Errorf("%+v, %v, want state %q, permissions %v, module %v", got, err, c.state, c.effective, c.module)
			}
		})
	}
	for _, c := range []struct {
		query Query
		want  Profile
		err   error
	}{
		{query: ofGrant, want: Profile{User: "Ada", Email: "a@b.c", Workspace: "t", Credential: "c"}},
		{query: Query{PATHash: secret}, want: Profile{User: "Ada", Email: "a@b.c", Workspace: "t", Credential: "p"}},
		{query: with(func(q *Query) { q.GrantIn = other }), err: ErrUnknown},
	} {
		rows, err := reader.Query(t.Context(), ProfileSQL, c.query.NamesArgs()...)
		must(t, err)
		if got, err := ScanProfile(rows); got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%+v, %v, want %+v, %v", got, err, c.want, c.err)
		}
	}
}

func TestLastUse_UpdatesLastUsed(t *testing.T) {
	seeds, unused := seed(t), uuid.New()
	seeds.token(t, unused)
	for service, url := range map[string]string{
		"authserver":  seeds.Authserver,
		"resourceapi": seeds.Resourceapi,
	} {
		t.Run(service, func(t *testing.T) {
			seeds.exec(t, "delete from account.token_uses")
			seeds.exec(t, "update account.grants set last_used_at = null")
			pool, err := pgxpool.New(t.Context(), url)
			must(t, err)
			defer pool.Close()
			recorder := NewLastUseRecorder(pool, slog.New(slog.DiscardHandler))
			for range 3 {
				for id, kind := range map[uuid.UUID]string{seeds.pat: PersonalAccessToken, seeds.grant: Connector} {
					recorder.Record(Standing{
						CredentialID:        id,
						Kind:                kind,
						CredentialWorkspace: seeds.workspaceID,
					}, netip.Addr{})
				}
			}
			recorder.Close()
			var used string
			err = seeds.owner.QueryRow(t.Context(), `
				select string_agg(id::text, ' ' order by id::text) from (
					select token_id as id, used_at as last_used_at from account.token_uses
					where tenant_id = $1
					union all select id, last_used_at from account.grants) as c
				where last_used_at > now() - interval '1 minute'`, seeds.workspaceID).Scan(&used)
			if err != nil || !strings.Contains(used, seeds.pat.String()) ||
				!strings.Contains(used, seeds.grant.String()) || strings.Contains(used, unused.String()) {
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

func TestLastUse_DoesNotBlockAndIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &stuckStore{release: make(chan struct{}), called: make(chan struct{}, 1)}
		recorder := NewLastUseRecorder(store, slog.New(slog.DiscardHandler))
		recorder.Record(Standing{CredentialID: uuid.New(), Kind: PersonalAccessToken}, netip.Addr{})
		<-store.called             // the first flush is blocked now
		for range 2 * noteAtMost { // while nothing is stored
			recorder.Record(Standing{CredentialID: uuid.New(), Kind: PersonalAccessToken}, netip.Addr{})
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

// A store that does not answer does not hold up the end of the process, whatever is left to record.
func TestLastUse_ClosesInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &stuckStore{release: make(chan struct{}), called: make(chan struct{}, 1)}
		recorder := NewLastUseRecorder(store, slog.New(slog.DiscardHandler))
		record := func() {
			recorder.Record(Standing{CredentialID: uuid.New(), Kind: Connector}, netip.MustParseAddr("203.0.113.7"))
		}
		record()
		<-store.called
		record()
		began := time.Now()
		recorder.Close()
		if took := time.Since(began); took > closeTimeout {
			t.Errorf("it took %s", took)
		}
	})
}
