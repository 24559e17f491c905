package postgres_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/rehearsal"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// A randomWorkspace is a workspace with random members, credentials and settings.
type randomWorkspace struct {
	*rehearsed
	*rand.Rand
	seed    uint64
	what    string // the change
	id      uuid.UUID
	by      audit.Actor // holds every permission
	members []uuid.UUID
	clients []client.Client
	known   []uuid.UUID // every credential
	hashes  map[uuid.UUID][]byte
	queue   *pgx.Batch
}

func (w *randomWorkspace) failf(format string, args ...any) {
	w.Errorf("seed %d, %s: %s", w.seed, w.what, fmt.Sprintf(format, args...))
}

func (w *randomWorkspace) some(of perm.Set) perm.Set {
	var out perm.Set
	for _, p := range of {
		if w.IntN(2) == 0 {
			out = append(out, p)
		}
	}
	if len(out) == 0 {
		out = perm.Set{of[w.IntN(len(of))]}
	}
	return perm.NewSet(out...)
}

func newRandomWorkspace(p *rehearsed, seed uint64) *randomWorkspace {
	w := &randomWorkspace{
		rehearsed: p,
		Rand:      rand.New(rand.NewPCG(seed, seed)),
		seed:      seed,
		id:        uuid.New(),
		hashes:    map[uuid.UUID][]byte{},
		queue:     &pgx.Batch{},
	}
	organisation := uuid.New()
	w.queue.Queue(`insert into account.organisations (id, name) values ($1, 'Trust')`, organisation)
	w.queue.Queue(`insert into account.tenants (id, organisation_id, name) values ($1, $2, 'Food Bank')`, w.id,
		organisation)
	for _, module := range perm.Modules() {
		w.queue.Queue(`insert into account.tenant_modules values ($1, $2, $3, $4)`, w.id, module, w.IntN(8) > 0,
			w.IntN(10) > 0)
	}
	w.queue.Queue(`insert into account.tenant_features values ($1, 'llm_integration', $2)`, w.id, w.IntN(5) > 0)
	if w.IntN(3) == 0 {
		w.queue.Queue(`insert into account.connector_policies values ($1, $2, $3, $4)`, w.id,
			[]string{"claude", "other"}, perm.ForConnectors().Strings(), 1+w.IntN(30))
	}
	w.addMembers()
	w.addClients()
	for range w.IntN(9) {
		w.addGrant()
	}
	for range w.IntN(7) {
		w.addToken()
	}
	w.addOthers()
	must(w, w.fixture.Owner.SendBatch(w.Context(), w.queue).Close())
	return w
}

func (w *randomWorkspace) addMembers() {
	for i := range 2 + w.IntN(4) {
		id, permissions := uuid.New(), w.some(perm.FullSet())
		if i == 0 {
			permissions = perm.FullSet()
			w.by = audit.Actor{
				UserID:        id,
				WorkspaceID:   w.id,
				Permissions:   permissions,
				Authorization: audit.Authorization{UserID: id},
			}
		}
		w.queue.Queue(`insert into account.users (id, email, name, email_proven_at, email_proven_by, disabled_at)
			values ($1, $1::uuid || '@example.org', 'Ada', now(), 'operator', case when $2 then now() end)`, id,
			i > 0 && w.IntN(8) == 0)
		w.queue.Queue(`insert into account.memberships (tenant_id, user_id, permissions) values ($1, $2, $3)`, w.id, id,
			permissions.Strings())
		w.members = append(w.members, id)
	}
}

// addClients registers clients of each kind; the first is known by its metadata document.
func (w *randomWorkspace) addClients() {
	const base = "https://api.example.org"
	for i := range 2 + w.IntN(4) {
		c := client.Client{ID: uuid.New(), Kind: client.Connector, AuthMethod: client.AuthNone, WorkspaceID: w.id,
			Platform: []string{"claude", "chatgpt"}[w.IntN(2)], Resource: base + []string{"/v1", "/mcp"}[w.IntN(2)],
			Required: w.some(perm.ForConnectors())}
		var document *string
		switch {
		case i == 0:
			address := "https://" + c.ID.String() + ".example/c.json"
			c.Platform, c.Resource, c.WorkspaceID, document = "", "", uuid.Nil, &address
		case w.IntN(3) == 0:
			c.Kind, c.Platform, c.AuthMethod = client.Confidential, "", client.SecretJSON
			c.Resource, c.Required = "", w.some(perm.FullSet())
		}
		w.queue.Queue(`insert into account.oauth_clients (id, kind, tenant_id, name, redirect_uris,
			required_permissions, connector_platform, resource, token_endpoint_auth_method, metadata_url,
			document_read_at, document_fresh_until)
			values ($1, $2, nullif($3, $9::uuid), 'App', '{}', $4, nullif($5, ''),
			case when $2 = 'connector' then $6 end, $7, $8, case when $8::text is not null then now() end,
			case when $8::text is not null then now() end)`, c.ID, c.Kind, c.WorkspaceID, c.Required.Strings(),
			c.Platform, c.Resource, c.AuthMethod, document, uuid.Nil)
		if c.Resource == "" {
			c.Resource = base + "/v1"
		}
		w.clients = append(w.clients, c)
	}
}

func (w *randomWorkspace) member() uuid.UUID { return w.members[w.IntN(len(w.members))] }

func (w *randomWorkspace) addGrant() {
	id, c := uuid.New(), w.clients[w.IntN(len(w.clients))]
	state := []string{"active", "active", "active", "active", "pending", "revoked"}[w.IntN(6)]
	generation := 1
	if state == "pending" {
		generation = 0
	}
	w.queue.Queue(`insert into account.grants (id, kind, client_id, user_id, tenant_id, permissions, resource, state,
		generation, created_at, ends_at, revoked_at, revoke_reason)
		values ($1, $2, $3, $4, $5, $6, $7, $8, $9, now() - make_interval(hours => $10),
		now() - make_interval(hours => $10) + interval '30 days', case when $8 = 'revoked' then now() end,
		case when $8 = 'revoked' then 'disconnected_by_user' end)`, id, c.Kind, c.ID, w.member(), w.id,
		w.some(c.Required).Strings(), c.Resource, state, generation, w.IntN(31*24))
	w.known = append(w.known, id)
}

// addToken creates a token, which may replace an earlier one.
func (w *randomWorkspace) addToken() {
	id, user := uuid.New(), w.member()
	digest := make([]byte, 32)
	for i := range digest {
		digest[i] = byte(w.IntN(256))
	}
	w.queue.Queue(`insert into account.personal_access_tokens (id, hash, user_id, tenant_id, name, permissions,
		expires_at, revoked_at, replaces_id)
		values ($1, $2, $3, $4, 'import', $5, now() + make_interval(days => $6), case when $7 then now() end,
		case when $8 then (select p.id from account.personal_access_tokens p where p.user_id = $3
		and p.tenant_id = $4 limit 1) end)`, id, digest, user, w.id, w.some(perm.FullSet()).Strings(), w.IntN(31)-3,
		w.IntN(6) == 0, w.IntN(3) == 0)
	w.known, w.hashes[id] = append(w.known, id), digest
}

// addOthers adds webhooks, invitations, usage and endings that wait for their worker.
func (w *randomWorkspace) addOthers() {
	for range w.IntN(4) {
		var token, approved *uuid.UUID
		if len(w.known) > 0 && w.IntN(2) == 0 {
			id := w.known[w.IntN(len(w.known))]
			if approved = &id; w.hashes[id] != nil {
				token, approved = &id, nil
			}
		}
		w.queue.Queue(`insert into account.webhooks (id, tenant_id, user_id, url, types, secret, secret_key, position,
			enabled, reason, disabled_at, created_at, token_id, grant_id) values (gen_random_uuid(), $1,
			coalesce((select user_id from account.grants where id = $4),
			(select user_id from account.personal_access_tokens where id = $5), $2),
			'https://hooks.example/', '{programme.created}', '', '', 0, $3, case when not $3 then 'user' end,
			case when not $3 then now() end, now(), $5, $4)`, w.id, w.member(), w.IntN(6) > 0, approved, token)
	}
	for range w.IntN(4) {
		w.queue.Queue(`insert into account.invitations (id, tenant_id, email, permissions, invited_by, token_hash,
			expires_at) values ($1, $2, $1::uuid || '@example.org', '{programmes:read:programmes}', $3,
			sha256($1::uuid::text::bytea), now() + make_interval(days => $4))`, uuid.New(), w.id, w.member(),
			w.IntN(9)-2)
	}
	if w.IntN(6) == 0 {
		w.queue.Queue(`insert into account.endings (id, tenant_id, until, client_id, keep, reason, actor, request_id)
			values (gen_random_uuid(), $1, now(), $2, '{}', 'client_deleted', 'admin', '')`, w.id,
			w.clients[w.IntN(len(w.clients))].ID)
	}
	operations := append(slices.Sorted(maps.Keys(w.demands)), "exchangeToken", "introspectToken")
	for _, id := range w.known {
		for range w.IntN(6) {
			requests := w.IntN(40)
			w.queue.Queue(`insert into account.usage (tenant_id, credential_id, day, operation, kind, user_id, requests,
				refused) values ($1, $2, $3, $4, 'connection', $5, $6, $7) on conflict do nothing`, w.id, id,
				time.Now().UTC().AddDate(0, 0, -[]int{0, 1, 9, 28, 29, 30, 31, 35}[w.IntN(8)]).Format(time.DateOnly),
				operations[w.IntN(len(operations))], w.by.UserID, requests, w.IntN(requests+1))
		}
	}
}

// change returns a random change, and the function that makes it with the service.
func (w *randomWorkspace) change() (rehearsal.Change, func() error) {
	ctx, user, r := w.Context(), w.member(), w.rehearsals
	if w.IntN(20) == 0 {
		user = uuid.New()
	}
	kinds := []func() (rehearsal.Change, func() error){
		func() (rehearsal.Change, func() error) {
			w.what = "remove " + user.String()
			return rehearsal.RemoveMember(user), func() error { return errOf(r.Members.Remove(ctx, w.by, user)) }
		},
		func() (rehearsal.Change, func() error) {
			permissions := w.some(perm.FullSet())
			w.what = "permissions " + permissions.Scope()
			return rehearsal.SetPermissions(user, permissions, nil), func() error {
				return errOf(r.Members.ChangePermissions(ctx, w.by, user, permissions, nil))
			}
		},
		func() (rehearsal.Change, func() error) {
			policy := workspace.ConnectorPolicy{Permissions: w.some(perm.ForConnectors()), Days: 1 + w.IntN(30)}
			for _, platform := range workspace.Platforms() {
				if w.IntN(4) > 0 {
					policy.Platforms = append(policy.Platforms, platform)
				}
			}
			w.what = fmt.Sprintf("policy %+v", policy)
			return rehearsal.SetPolicy(policy, nil), func() error {
				now, err := w.ConnectorPolicy(ctx, w.id)
				must(w, err)
				return errOf(r.Connections.SetPolicy(ctx, w.by, now.Digest(), policy, nil))
			}
		},
		func() (rehearsal.Change, func() error) {
			on := w.IntN(4) == 0
			w.what = fmt.Sprint("assistants ", on)
			return rehearsal.SwitchAssistants(on), func() error { return r.Connections.SwitchAssistants(ctx, w.by, on) }
		},
		func() (rehearsal.Change, func() error) {
			c := w.clients[w.IntN(len(w.clients))].ID // deleting the first is refused: it belongs to no workspace
			w.what = "delete client " + c.String()
			return rehearsal.DeleteClient(c), func() error { return errOf(r.Clients.Delete(ctx, w.by, c, nil)) }
		},
		func() (rehearsal.Change, func() error) {
			module := perm.Modules()[w.IntN(2)]
			w.what = "disable " + module
			return rehearsal.DisableModule(module), func() error {
				event := w.by.Event(audit.ModuleChanged, "tenant:"+w.id.String(), nil, nil)
				return r.DisableModule(ctx, w.id, module, event)
			}
		},
	}
	return kinds[w.IntN(len(kinds))]()
}
