package standing

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

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

func TestRead_AnswersForCredentialInWorkspace(t *testing.T) {
	database := testkit.NewDatabase(t)
	owner, err := pgx.Connect(t.Context(), database.Owner)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = owner.Close(t.Context()) }()
	workspaceID, other, user, client, grant := uuid.New(), uuid.New(), uuid.New(), uuid.New(), uuid.New()
	pat, secret := uuid.New(), []byte("the hash of a personal token, 32")
	all := perm.FullSet()
	for _, statement := range []struct {
		sql  string
		args []any
	}{
		{`insert into account.organisations (id, name) values ($1, 'o')`, []any{workspaceID}},
		{`insert into account.tenants (id, organisation_id, name) values ($1, $1, 't')`, []any{workspaceID}},
		{`insert into account.tenants (id, organisation_id, name) values ($1, $2, 'u')`, []any{other, workspaceID}},
		{`insert into account.tenant_features (tenant_id, feature, enabled) values ($1, 'llm_integration', true)`,
			[]any{workspaceID}},
		{`insert into account.tenant_modules (tenant_id, module, enabled, provisioned) values
			($1, 'programmes', true, false)`, []any{workspaceID}},
		{`insert into account.users (id, email, name) values ($1, 'a@b.c', 'Ada')`, []any{user}},
		{`insert into account.memberships (tenant_id, user_id, permissions) values ($1, $2, $3)`,
			[]any{workspaceID, user, all.Strings()}},
		{`insert into account.signing_keys (kid, public_jwk, private_sealed, state) values ('k', '{}', '', 'current')`,
			nil},
		{`insert into account.oauth_clients (id, kind, tenant_id, name, redirect_uris, required_permissions,
			connector_platform, resource, token_endpoint_auth_method)
			values ($1, 'connector', $2, 'c', '{}', '{}', 'claude', 'https://api.example.org/mcp', 'none')`,
			[]any{client, workspaceID}},
		{`insert into account.grants (id, kind, client_id, user_id, tenant_id, permissions, resource, state, ends_at)
			values ($1, 'connector', $2, $3, $4, $5, 'https://api.example.org/mcp', 'active',
			now() + interval '1 day')`, []any{grant, client, user, workspaceID, all.Strings()}},
		{`insert into account.personal_access_tokens (id, hash, user_id, tenant_id, name, permissions, expires_at)
			values ($1, $2, $3, $4, 'p', $5, now() + interval '1 day')`,
			[]any{pat, secret, user, workspaceID, all.Strings()}},
	} {
		if _, err := owner.Exec(t.Context(), statement.sql, statement.args...); err != nil {
			t.Fatalf("%s: %v", statement.sql, err)
		}
	}
	reader, err := pgx.Connect(t.Context(), database.Resourceapi)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Close(t.Context()) }()
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
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ScanProfile(rows); got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%+v, %v, want %+v, %v", got, err, c.want, c.err)
		}
	}
}
