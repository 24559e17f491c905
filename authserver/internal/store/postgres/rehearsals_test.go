package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/pat"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/oauth/rehearsal"
	"github.com/almonerhq/almoner/shared/contract/openapi"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
)

// rehearsals returns the rehearsals of the store, with the services that make the changes.
func (l *storeTest) rehearsals() *rehearsal.Rehearsals {
	propagated := func(ctx context.Context, ended []useraccount.EndedGrant) {
		if len(ended) > 0 && ctx.Value(rehearsing{}) != nil {
			l.Error("a rehearsal ended grants in Redis")
		}
	}
	return rehearsal.New(rehearsal.Rehearsals{
		Store:   l.Store,
		Members: &membership.Service{Store: l.Store, PropagateRevocation: propagated},
		Connections: &consent.Connections{
			Store: l.Store,
			PropagateRevocation: func(ctx context.Context, _ grant.Reason, ended []useraccount.EndedGrant) {
				propagated(ctx, ended)
			},
			Now: time.Now,
		},
		Clients: &client.Registry{Store: l.Store, PropagateRevocation: propagated, Now: time.Now},
		DisableModule: func(ctx context.Context, workspaceID uuid.UUID, module string, event audit.Event) error {
			return errOf(l.SetModule(ctx, workspaceID, module, admin.ModuleChange{Enabled: new(bool)}, event))
		},
		Now: time.Now,
	})
}

type rehearsing struct{}

// R1 and R2: what a rehearsal says is what happens, for random workspaces and changes, and it changes nothing.
// ALMONER_REHEARSALS is the number of workspaces; ALMONER_REHEARSAL_SEED selects the first.
func TestR1_RehearsalSaysWhatHappens(t *testing.T) {
	l := ownStoreTest(t)
	l.fixture.Exec(`insert into account.signing_keys (kid, public_jwk, private_sealed, state)
		values ('now', '{}', '', 'current')`)
	number, seed := 1_000, rand.Uint64N(1<<40)
	if text := os.Getenv("ALMONER_REHEARSALS"); text != "" {
		number, _ = strconv.Atoi(text)
	}
	if text := os.Getenv("ALMONER_REHEARSAL_SEED"); text != "" {
		seed, _ = strconv.ParseUint(text, 10, 64)
	}
	p := &rehearsed{storeTest: l, rehearsals: l.rehearsals(), tables: l.texts(`select table_name::text
		from information_schema.columns where table_schema = 'account' and column_name = 'tenant_id'
			and table_name not like '%\_p20%'`)}
	p.demands, _ = openapi.Demands()
	var next atomic.Uint64
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for at := next.Add(1); at <= uint64(number) && !t.Failed(); at = next.Add(1) {
				p.once(seed + at)
			}
		})
	}
	all.Wait()
	for what, least := range map[string]int64{
		"ends": 20, "pauses": 20, "narrows": 20, "refused": 50, "webhooks": 5, "invitations": 5, "refusals": 5,
		"staying": 20, "sooner": 20,
	} {
		counted, _ := p.met.Load(what)
		if n, _ := counted.(int64); n < least*int64(number)/1000 {
			t.Errorf("seed %d: only %d workspaces with %s", seed, n, what)
		}
	}
}

// A rehearsed is the test of all workspaces.
type rehearsed struct {
	*storeTest
	rehearsals *rehearsal.Rehearsals
	demands    map[string]standing.Demand
	tables     []string // with a column tenant_id
	met        sync.Map // how many workspaces had what
	counting   sync.Mutex
	working    sync.RWMutex // for writing: the worker is at work, which may end grants of any workspace
}

func (p *rehearsed) meet(what string, happened bool) {
	p.counting.Lock()
	defer p.counting.Unlock()
	if n, _ := p.met.LoadOrStore(what, int64(0)); happened {
		p.met.Store(what, n.(int64)+1)
	}
}

// once rehearses and makes one change of one random workspace.
func (p *rehearsed) once(seed uint64) {
	p.working.RLock()
	w := newRandomWorkspace(p, seed)
	change, act := w.change()
	untouched, before := w.rows(), w.facts()
	ctx := context.WithValue(p.Context(), rehearsing{}, true)
	said, rehearseErr := p.rehearsals.Run(ctx, w.by, change)
	if w.rows() != untouched {
		w.failf("the rehearsal changed something")
	}
	p.working.RUnlock()
	actErr := act()
	if fmt.Sprint(rehearseErr) != fmt.Sprint(actErr) {
		w.failf("the rehearsal fails with %v, the change with %v", rehearseErr, actErr)
	}
	if p.meet("refusals", actErr != nil); actErr != nil {
		return
	}
	w.finish()
	w.compare(said, before, w.facts())
}

// finish does what a change leaves to the background.
func (w *randomWorkspace) finish() {
	for range 1_000 {
		if w.count(`select count(*) from account.endings where tenant_id = $1`, w.id) == 0 {
			return
		}
		w.working.Lock()
		_, _, err := w.EndNext(w.Context())
		w.working.Unlock()
		must(w, err)
	}
	w.failf("the change is never finished")
}

// rows returns a digest of all rows of the workspace.
func (w *randomWorkspace) rows() string {
	var parts []string
	for _, table := range w.tables {
		parts = append(parts, fmt.Sprintf(`coalesce((select md5(string_agg(r::text, ',' order by r::text))
			from account.%s r where tenant_id = $1), '')`, table))
	}
	return w.read(`select md5(concat(`+strings.Join(parts, ", ")+`, (select t::text from account.tenants t
		where t.id = $1)))`, w.id)
}

// facts are what production says of a workspace.
type facts struct {
	connections, tokens, webhooks, invitations []string
	ends                                       map[string]time.Time // of the connections
	held                                       map[uuid.UUID]perm.Set
	allowed                                    map[uuid.UUID][]string // operations of each credential
}

// facts reads the lists that people see, and asks for each operation whether a credential may do it.
func (w *randomWorkspace) facts() facts {
	f := facts{ends: map[string]time.Time{}, held: map[uuid.UUID]perm.Set{}, allowed: map[uuid.UUID][]string{}}
	connections, err := w.Connections(w.Context(), w.id, consent.ConnectionFilter{Limit: 100})
	must(w, err)
	for _, c := range connections {
		if c.State(time.Now()) == consent.ConnectionActive {
			f.connections = append(f.connections, c.Grant.ID.String())
			f.ends[c.Grant.ID.String()] = c.Grant.Ends
		}
	}
	tokens, err := w.WorkspaceTokens(w.Context(), w.id, pat.Filter{Limit: 100})
	must(w, err)
	for _, t := range tokens {
		f.tokens = append(f.tokens, t.ID.String())
	}
	f.webhooks = w.texts(`select id::text from account.webhooks where tenant_id = $1 and enabled
		and 'account:api:access' = any (account.webhook_standing(tenant_id, id))`, w.id)
	f.invitations = w.texts(`select id::text from account.invitations where tenant_id = $1 and ended_at is null
		and expires_at > now()`, w.id)
	modules := append(perm.Modules(), "")
	var asked []standing.Query
	for _, id := range w.known {
		for _, module := range modules {
			asked = append(asked, standing.Query{PATHash: w.hashes[id], GrantID: id, GrantIn: w.id, KeyID: "now",
				WorkspaceID: w.id, Module: module})
		}
	}
	all, err := standing.ReadAll(w.Context(), w.fixture.Owner, asked)
	must(w, err)
	for i, s := range all {
		id, module := w.known[i/len(modules)], modules[i%len(modules)]
		if module == modules[0] {
			f.held[id] = slices.Clone(s.CredentialPermissions.Intersect(s.MemberPermissions))
		}
		f.held[id] = slices.DeleteFunc(f.held[id], func(p perm.Permission) bool {
			return p.OfModule() && p.Module() == module && !(s.ModuleEnabled && s.ModuleProvisioned)
		})
		for operation, d := range w.demands {
			of := ""
			if len(d.Permissions) > 0 && d.Permissions[0].OfModule() {
				of = d.Permissions[0].Module()
			}
			d.WorkspaceID = w.id
			if of == module && s.Decide(d) == standing.Allowed {
				f.allowed[id] = append(f.allowed[id], operation)
			}
		}
	}
	return f
}

// acts reports whether a credential may do an operation that needs a permission.
func (w *randomWorkspace) acts(f facts, id uuid.UUID) bool {
	return slices.ContainsFunc(f.allowed[id], func(operation string) bool {
		d := w.demands[operation]
		return len(d.Permissions) > 0 && !d.ForAssistants
	})
}

func ids(all []uuid.UUID) []string {
	var out []string
	for _, id := range all {
		out = append(out, id.String())
	}
	return slices.Sorted(slices.Values(out))
}

// missing returns the sorted texts of one list that another lacks.
func missing(from, in []string) []string {
	return slices.Sorted(slices.Values(slices.DeleteFunc(slices.Clone(from), func(one string) bool {
		return slices.Contains(in, one)
	})))
}

// compare compares what a rehearsal said with what happened.
func (w *randomWorkspace) compare(said rehearsal.Outcome, before, after facts) {
	same := func(what string, said, happened []string) {
		if w.meet(what, len(happened) > 0); !slices.Equal(said, happened) {
			w.failf("%s: said %v, happened %v", what, said, happened)
		}
	}
	same("ends", ids(said.With(rehearsal.Ends, false)), missing(before.connections, after.connections))
	same("ended tokens", ids(said.With(rehearsal.Ends, true)), missing(before.tokens, after.tokens))
	same("webhooks", ids(said.Webhooks), missing(before.webhooks, after.webhooks))
	same("invitations", ids(said.Invitations), missing(before.invitations, after.invitations))
	var pauses, narrows []string
	switches := strings.HasPrefix(w.what, "assistants") || strings.HasPrefix(w.what, "disable")
	for _, id := range w.known {
		if !slices.Contains(slices.Concat(after.connections, after.tokens), id.String()) {
			continue
		}
		if switches && w.acts(before, id) && !w.acts(after, id) {
			pauses = append(pauses, id.String())
		} else if loses := before.held[id].Without(after.held[id]); len(loses) > 0 {
			narrows = append(narrows, id.String()+" "+loses.Scope())
		}
	}
	sooner := 0
	for id, ends := range after.ends {
		if ends.Before(before.ends[id]) {
			sooner++
		}
	}
	if w.meet("sooner", sooner > 0); said.Sooner != sooner {
		w.failf("%d sooner, said %d", sooner, said.Sooner)
	}
	var saidNarrows []string
	for _, a := range said.Affected {
		if a.Fate == rehearsal.Narrows {
			saidNarrows = append(saidNarrows, a.ID.String()+" "+a.Loses.Scope())
		}
	}
	slices.Sort(saidNarrows)
	slices.Sort(narrows)
	slices.Sort(pauses)
	same("narrows", saidNarrows, narrows)
	same("pauses", ids(slices.Concat(said.With(rehearsal.Pauses, false), said.With(rehearsal.Pauses, true))), pauses)
	same("refused", usesSaid(said), w.usesRefused(before, after))
	w.meet("staying", len(said.Affected) == 0 && len(after.connections) > 0)
}

// usesSaid returns the operations of a rehearsal, and the sum, as text.
func usesSaid(said rehearsal.Outcome) (texts []string) {
	sum := int64(0)
	for _, o := range said.Operations {
		sum += o.Requests
		texts = append(texts, fmt.Sprint(o.Name, " ", o.Requests, " ", o.Credentials))
	}
	if sum != said.Requests {
		texts = append(texts, fmt.Sprint("a sum of ", said.Requests))
	}
	return slices.Sorted(slices.Values(texts))
}

// usesRefused is usesSaid for what happened: each row of usage is decided by itself.
func (w *randomWorkspace) usesRefused(before, after facts) []string {
	type row struct {
		ID        uuid.UUID
		Operation string
		Requests  int64
	}
	rows, err := w.fixture.Owner.Query(w.Context(), `select credential_id, operation, requests - refused
		from account.usage where tenant_id = $1 and day > (now() at time zone 'UTC')::date - 30`, w.id)
	must(w, err)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
	must(w, err)
	requests, credentials := map[string]int64{}, map[string]map[uuid.UUID]bool{}
	for _, r := range all {
		if r.Requests > 0 && slices.Contains(before.allowed[r.ID], r.Operation) &&
			!slices.Contains(after.allowed[r.ID], r.Operation) {
			requests[r.Operation] += r.Requests
			if credentials[r.Operation] == nil {
				credentials[r.Operation] = map[uuid.UUID]bool{}
			}
			credentials[r.Operation][r.ID] = true
		}
	}
	var texts []string
	for operation, n := range requests {
		texts = append(texts, fmt.Sprint(operation, " ", n, " ", len(credentials[operation])))
	}
	return slices.Sorted(slices.Values(texts))
}

// A heldRegistry deletes clients after it has called before with the number of the call. It calls after when the client
// is deleted, in the transaction.
type heldRegistry struct {
	client.Store
	before, after func(n int)
	n             int
}

func (h *heldRegistry) DeleteClient(
	ctx context.Context, workspaceID, id uuid.UUID, event audit.Event,
) (useraccount.EndedCredentials, error) {
	h.n++
	h.before(h.n)
	defer h.after(h.n)
	return h.Store.DeleteClient(ctx, workspaceID, id, event)
}

// R4: a rehearsal of a large workspace is complete, up to its bound. It locks no grants, so that requests of these do
// not wait for it. Between its parts it locks nothing: consents for the client and changes of the member go through.
func TestR4_LargeRehearsalHoldsUpNobody(t *testing.T) {
	l := ownStoreTest(t)
	app, _ := l.fixture.Confidential(perm.ProgrammesRead)
	first, owner := l.consented(app, 0), l.fixture.Member(perm.FullSet()...)
	copied := func(number int) {
		l.fixture.Exec(`insert into account.grants select one.* from account.grants original,
			unnest(array(select gen_random_uuid() from generate_series(1, $2))) copies (copy),
			jsonb_populate_record(original, jsonb_build_object('id', copy)) one where original.id = $1`,
			first.ID, number)
	}
	copied(9_999)
	by := audit.Actor{UserID: owner, WorkspaceID: first.WorkspaceID, Permissions: perm.FullSet(),
		Authorization: audit.Authorization{UserID: owner}}
	r := l.rehearsals()
	held := &heldRegistry{Store: l.Store}
	r.Clients.Store = held
	hasty := l.hasty()
	held.before = func(n int) {
		if n != 2 {
			return
		}
		consent := l.grant
		consent.ID, consent.Kind, consent.ClientID = uuid.New(), app.Kind, app.ID
		wants(l, grant.Pending)(hasty.approve(t.Context(), consent))
		must(t, errOf(hasty.rehearsals().Members.ChangePermissions(t.Context(), by, first.UserID,
			perm.NewSet(perm.EngageReadForms), nil)))
	}
	held.after = func(n int) {
		if n == 2 {
			l.wantCount(10_000, "grants that are not locked", `select count(*) from (select from account.grants
				where client_id = $1 and state = 'active' for update skip locked) g`, app.ID)
		}
	}
	said, err := r.Run(t.Context(), by, rehearsal.DeleteClient(app.ID))
	if ends := said.With(rehearsal.Ends, false); err != nil || len(ends) != 10_000 || held.n != 20 {
		t.Errorf("%d connections end, in %d parts, %v", len(ends), held.n, err)
	}
	copied(rehearsal.MaxCredentials - 9_999)
	_, err = r.Run(t.Context(), by, rehearsal.DeleteClient(app.ID))
	wantErr(t, "more than the bound", rehearsal.ErrTooMany, err)
	_, err = r.Run(t.Context(), by, rehearsal.SetPolicy(policyOf(7, nil, perm.ProgrammesRead), nil))
	must(t, err) // it concerns none of them
}

// R4: a statement of a rehearsal that holds locks ends after the time of an operation. Others may take twice as long.
func TestR4_StatementsAreShort(t *testing.T) {
	l := ownStoreTest(t)
	_, operation, _, err := l.Limits(t.Context())
	must(t, err)
	l.fixture.Exec(fmt.Sprintf(`create function account.slow() returns trigger language plpgsql as
		$$begin
			if current_setting('statement_timeout')::interval <= interval '%d milliseconds' then
				raise exception 'canceled' using errcode = 'query_canceled';
			end if;
			return new;
		end$$`, operation.Milliseconds()))
	l.fixture.Exec(`create trigger slow before insert on account.connector_policies
		for each row execute function account.slow()`)
	owner, r := l.fixture.Member(perm.FullSet()...), l.rehearsals()
	by := audit.Actor{UserID: owner, WorkspaceID: l.fixture.WorkspaceID, Permissions: perm.FullSet(),
		Authorization: audit.Authorization{UserID: owner}}
	_, err = r.Run(t.Context(), by, rehearsal.SetPolicy(policyOf(7, nil, perm.ProgrammesRead), nil))
	wantErr(t, "a rehearsal", rehearsal.ErrTooSlow, err)
	l.limit(policyOf(7, nil, perm.ProgrammesRead))
}
