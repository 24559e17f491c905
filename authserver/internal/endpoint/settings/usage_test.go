package settings_test

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/openapi"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// Each operation that takes a credential and each tool has words, and no other, so that no page shows people its
// technical name.
func TestOperations_HaveWords(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("operations.json")
	must(t, err)
	var words map[string]string
	must(t, json.Unmarshal(content, &words))
	demands, err := openapi.Demands()
	must(t, err)
	names := []string{"exchangeToken", "exchangeTokenAtAlias", "introspectToken", "revokeToken"}
	names = slices.Sorted(slices.Values(slices.AppendSeq(names, maps.Keys(demands))))
	if has := slices.Sorted(maps.Keys(words)); !slices.Equal(has, names) {
		t.Errorf("operations.json has words for %q, want %q", has, names)
	}
}

// used stores what a credential did today and 29 days ago, and what it did before, which pages do not show.
func used(site *browsertest.Server, kind string, user, credential uuid.UUID) {
	site.Fixture.Exec(`insert into account.usage
		(tenant_id, credential_id, day, operation, kind, user_id, requests, refused, records)
		select $1, $2, ((now() at time zone 'UTC')::date - ago), operation, $3, $4, requests, refused, records
		from (values (0, 'list_programmes', 1200, 12, 5000), (29, 'exportSubmissions', 40, 0, 310),
			(30, 'deleteForm', 7, 7, 7)) as v (ago, operation, requests, refused, records)`,
		site.Fixture.WorkspaceID, credential, kind, user)
	site.Fixture.Exec(`insert into account.credential_networks
		(tenant_id, credential_id, network, kind, user_id, first_used_at, last_used_at)
		values ($1, $2, '203.0.113.0/24', $3, $4, now() - interval '3 days', now())`,
		site.Fixture.WorkspaceID, credential, kind, user)
}

// did are words of the page of a credential with the usage of used.
var did = []string{
	"1,240 requests, 12 refused, 5,310 records in 30 days", "Read the list of programmes", "Exported submissions",
	"203.0.113.0/24", "See programmes", "exportSubmissions",
}

// tokenOf creates a token of a member, and returns its id.
func tokenOf(site *browsertest.Server, user uuid.UUID, permissions ...perm.Permission) (id uuid.UUID) {
	site.Fixture.Token(user, permissions...)
	site.Must(site.Fixture.Owner.QueryRow(context.Background(), `select id from account.personal_access_tokens
		where user_id = $1 order by created_at desc limit 1`, user).Scan(&id))
	return id
}

func TestConnection_ShowsWhatItDidAndIsNarrowed(t *testing.T) {
	site := shared(t)
	both := []perm.Permission{perm.ProgrammesRead, perm.ProgrammesWrite}
	ada, eve := site.Member(both...), site.Member(both...)
	app := site.Fixture.Connector(browsertest.Resource, both...)
	g, hers := site.Redeemed(app, ada.ID), site.Redeemed(app, eve.ID)
	used(site, "connection", ada.ID, g.ID)
	const form = "/settings/apps/app"
	page, browser := form+"?id="+g.ID.String(), site.SignedIn(ada)
	browser.Get("/settings/apps").Contains(`href="` + page + `"`)
	shown := browser.Get(page)
	shown.Wants(http.StatusOK, did...).Lacks("Deleted a form").Times(2, `class="plot-bar"`)
	// The plot has a name and a description, and what it shows is in tables: two days, two operations.
	shown.Selects(`svg.plot[role="img"][aria-labelledby="plot-title plot-text"] > title#plot-title`,
		`svg.plot > desc#plot-text`, `.past table.numbers > caption`).Times(4, `<th scope="row">`)
	shown.Says("Most on", "1,200 requests. The table below has each day.")
	narrow := shown.Form(form)
	for name, c := range map[string]struct {
		permissions []string
		words       string
	}{
		"none":                     {nil, "Choose at least one permission."},
		"a write without its read": {[]string{writing}, "Also keep “See programmes”."},
		"more":                     {[]string{reading, "engage:read:forms"}, "It can only lose permissions."},
	} {
		narrow["permissions"] = c.permissions
		browser.Post(form, narrow).As(name).Wants(http.StatusBadRequest, "Nothing was changed.", c.words)
	}
	narrow["permissions"] = []string{reading}
	browser.Post(form, with(narrow, "id", hers.ID.String())).Follow().Wants(http.StatusOK, "no longer connected")
	site.Rows(0, "grants", `cardinality(permissions) = 1`)
	browser.Post(form, narrow).LeadsTo(page).Follow().Wants(http.StatusOK, "can do only what you left")
	site.Rows(1, "grants", `id = $1 and permissions = array[$2]`, g.ID, reading)
	browser.Get(form+"?id="+hers.ID.String()).Follow().Wants(http.StatusOK, "no longer connected")
	shown.Send("/settings/apps/disconnect", nil).Follow().Says("was disconnected")
	browser.Get(page).Wants(http.StatusOK, "You disconnected Claude.", "1,240 requests").Lacks("Narrow")
	browser.Post(form, narrow).Follow().Wants(http.StatusOK, "no longer connected")
}

func TestConnection_OfOthersNeedsPermissions(t *testing.T) {
	site := shared(t)
	sam := site.Member(perm.ProgrammesRead, perm.ProgrammesWrite)
	g := site.Redeemed(site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead, perm.ProgrammesWrite), sam.ID)
	used(site, "connection", sam.ID, g.ID)
	token := tokenOf(site, sam.ID, perm.ProgrammesRead)
	used(site, "personal_access_token", sam.ID, token)
	const form, tokenForm = connectors + "/connection", connectors + "/token"
	here := "?tenant=" + site.Fixture.WorkspaceID.String() + "&id="
	developing := site.SignedIn(developer(site))
	developing.Get(connectors).Omits(form).Says("Disconnect")
	developing.Get(form + here + g.ID.String()).Follow().Says("no longer connected")
	developing.Get(tokenForm + here + token.String()).Follow().Says("no longer active")
	reads := site.SignedIn(developer(site, perm.AccountReadMembers))
	reads.Get(connectors).Contains(form)
	page := reads.Get(form + here + g.ID.String())
	page.Wants(http.StatusOK, append(did, sam.Email)...).Lacks("Narrow")
	reads.Get(tokenForm+here+token.String()).Wants(http.StatusOK, append(did, sam.Email)...).Lacks("Revoke")
	fields := with(page.Form(connectors+"/disconnect"), "permissions", reading)
	reads.Post(form, fields).Wants(http.StatusForbidden, "you need the permission “Manage members”")
	reads.Post(tokenForm, with(fields, "id", token.String())).Wants(http.StatusForbidden, "you need the permission")
	site.Rows(0, "grants", `cardinality(permissions) = 1`)
	stranger := site.SignedIn(developerElsewhere(site))
	stranger.Get(form + here + g.ID.String()).Wants(http.StatusForbidden).Lacks(sam.Email)

	// One who may do all in another workspace names that one with these ids.
	eve, other := site.Stranger(), site.Fixture.Workspace("Fernside Hospice")
	site.Fixture.Join(other, eve.ID, perm.AccountAPIAccess, perm.AccountReadMembers, perm.AccountWriteMembers)
	elsewhere, there := site.SignedIn(eve), "?tenant="+other.String()+"&id="
	elsewhere.Get(form + there + g.ID.String()).Follow().Says("no longer connected").Lacks(sam.Email)
	elsewhere.Get(tokenForm + there + token.String()).Follow().Says("no longer active").Lacks(sam.Email)
	theirs := with(elsewhere.Get(connectors).Form(connectors+"/llm"), "permissions", reading, "id", g.ID.String())
	elsewhere.Post(form, theirs).Follow().Says("no longer connected")
	elsewhere.Post(connectors+"/disconnect", theirs).Follow().Says("no longer connected")
	elsewhere.Post(tokenForm, with(theirs, "id", token.String())).Follow().Says("no longer active")
	site.Rows(1, "grants", `state = 'active' and cardinality(permissions) = 2`)
	site.Rows(1, "personal_access_tokens", `id = $1 and revoked_at is null`, token)

	manages := site.SignedIn(developer(site, perm.AccountReadMembers, perm.AccountWriteMembers))
	page = manages.Get(form + here + g.ID.String())
	manages.Post(form, with(page.Form(form), "permissions", reading)).Follow().Says("can do only what you left")
	site.Rows(1, "grants", `permissions = array[$1]`, reading)
	page.Send(connectors+"/disconnect", nil).Follow().Says("was disconnected from the account of")
	manages.Get(tokenForm+here+token.String()).Send(tokenForm, nil).Follow().Says("was revoked")
	site.Rows(1, "personal_access_tokens", `id = $1 and revoke_reason = 'revoked_by_administrator'`, token)
}

func TestToken_ShowsWhatItDid(t *testing.T) {
	site, ada, browser := inSettings(t, perm.ProgrammesRead)
	id, others := tokenOf(site, ada.ID, perm.ProgrammesRead), tokenOf(site, site.Member(perm.ProgrammesRead).ID,
		perm.ProgrammesRead)
	used(site, "personal_access_token", ada.ID, id)
	page, tenant := "/settings/tokens/token?id="+id.String(), "tenant="+site.Fixture.WorkspaceID.String()
	browser.Get(ownTokens).Contains(`href="` + page + `"`)
	browser.Get(page).Wants(http.StatusOK, did...).Contains(`href="` + ownTokens + `"`)
	fromDevelopers := strings.Replace(page, "?", "?"+tenant+"&", 1)
	browser.Get(developers).Contains(strings.ReplaceAll(fromDevelopers, "&", "&amp;"))
	shown := browser.Get(fromDevelopers).Wants(http.StatusOK).Contains(`href="` + developers + "?" + tenant + `"`)
	browser.Get("/settings/tokens/token?id=" + others.String()).Follow().Says("no longer active")
	shown.Send(tokens+"/revoke", nil).LeadsTo(developers + "?" + tenant).Follow().Says("was revoked")
	browser.Get(page).Follow().Wants(http.StatusOK, "no longer active")
	site.Rows(1, "personal_access_tokens", `revoked_at is not null`)
}

func TestUsage_ListsIdleAndEndsThem(t *testing.T) {
	site := shared(t)
	path := connectors + "/usage"
	manager := developer(site, perm.AccountReadMembers, perm.AccountWriteMembers)
	sam := site.Member(perm.ProgrammesRead)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	browser := site.SignedIn(manager)
	browser.Get(path).Says("Nothing to end", "Nothing expires soon", "Nothing in the last 30 days")
	idle, busy := site.Redeemed(app, sam.ID), site.Redeemed(app, sam.ID)
	site.Redeemed(app, sam.ID) // a new one
	forgotten := tokenOf(site, sam.ID, perm.ProgrammesRead)
	site.Fixture.Exec(`update account.grants set created_at = now() - interval '40 days',
		last_used_at = now() - interval '35 days', ends_at = now() + interval '50 days' where id = any($1)`,
		[]uuid.UUID{idle.ID, busy.ID})
	site.Fixture.Exec(`update account.personal_access_tokens set name = 'Old export',
		created_at = now() - interval '8 days', expires_at = now() + interval '5 days' where id = $1`, forgotten)
	used(site, "connection", sam.ID, busy.ID)
	page := browser.Get(path)
	page.Wants(http.StatusOK, "Old export", "Donor sync", "1,240 requests, 12 refused").
		Selects(`input[value="`+idle.ID.String()+`"][checked]`, `input[value="`+forgotten.String()+`"][checked]`).
		Omits(`value="` + busy.ID.String() + `"`)
	form := page.Form(path)
	browser.Post(path, with(form, "credential", "-")).Wants(http.StatusBadRequest, "Choose what to end.")

	reads := site.SignedIn(developer(site, perm.AccountReadMembers))
	others := with(reads.Get(path).Says("Old export").Form(path), "credential", forgotten.String())
	reads.Post(path, others).Wants(http.StatusForbidden, "you need the permission")
	site.SignedIn(developer(site)).Get(path).Says("Nothing to end", "Nothing expires soon").Lacks("Donor sync")
	site.Rows(1, "personal_access_tokens", "revoked_at is null")

	form["credential"] = []string{idle.ID.String(), busy.ID.String(), forgotten.String()}
	browser.Post(path, form).Follow().
		Says("1 connection and 1 personal access token were ended. 1 other had ended already or had been used since")
	site.Rows(1, "grants", `id = $1 and revoke_reason = 'revoked_by_administrator'`, idle.ID)
	site.Rows(2, "grants", `state = 'active'`)
	site.Rows(0, "personal_access_tokens", "revoked_at is null")
	browser.Post(path, form).Follow().Says("Nothing was changed: what you chose had ended already")
}

// If the database fails while several are ended, the page says what has ended, and leads to the others.
func TestUsage_SaysWhatEndedBeforeAFailure(t *testing.T) {
	site := own(t)
	path := connectors + "/usage"
	ada := developer(site, perm.ProgrammesRead)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	first, second := site.Redeemed(app, ada.ID), site.Redeemed(app, ada.ID)
	old := tokenOf(site, ada.ID, perm.ProgrammesRead)
	for ago, id := range []uuid.UUID{first.ID, second.ID, old} { // in the order of the page
		for _, table := range []string{"grants", "personal_access_tokens"} {
			site.Fixture.Exec(`update account.`+table+` set created_at = now() - make_interval(days => 40 + $2)
				where id = $1`, id, ago)
		}
	}
	site.Fixture.Exec(`update account.grants set last_used_at = null`)
	site.Fixture.Exec(`create function fails() returns trigger language plpgsql as
		$$begin raise exception 'the lock is held' using errcode = 'lock_not_available'; end$$`)
	site.Fixture.Exec(`create trigger fails before update on account.grants for each row
		when (old.id = '` + second.ID.String() + `') execute function fails()`)
	browser := site.SignedIn(ada)
	form := browser.Get(path).Form(path)
	failed := browser.Post(path, form)
	failed.Wants(http.StatusServiceUnavailable, "1 connection was ended. 2 are left. You can end them").
		Lacks("Nothing was changed")
	site.Rows(1, "grants", `id = $1 and state = 'revoked'`, first.ID)
	site.Fixture.Exec(`drop trigger fails on account.grants`)
	browser.Get(failed.Links(path + "?")[0]).Send(path, nil).Follow().
		Says("1 connection and 1 personal access token were ended.").Lacks("had ended already")
	site.Rows(0, "grants", `state = 'active'`)
	site.Rows(0, "personal_access_tokens", "revoked_at is null")
}

func TestMember_RemovedHasSheetFor90Days(t *testing.T) {
	site := shared(t)
	manager := site.SignedIn(memberManager(site))
	sam := site.Member(perm.ProgrammesRead)
	site.Redeemed(site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead), sam.ID)
	site.Fixture.Exec(`update account.personal_access_tokens set name = 'Nightly export' where id = $1`,
		tokenOf(site, sam.ID, perm.ProgrammesRead))
	invitation := `insert into account.invitations (id, tenant_id, email, permissions, invited_by, token_hash,
		created_at, expires_at) values (gen_random_uuid(), $1, $2, '{programmes:read:programmes}', $3,
		sha256(gen_random_uuid()::text::bytea), now(), now() + interval '7 days')`
	site.Fixture.Exec(invitation, site.Fixture.WorkspaceID, "pat.lee@example.org", sam.ID)
	site.Fixture.Exec(`insert into account.webhooks (id, tenant_id, user_id, url, types, secret, secret_key, position,
		created_at) values (gen_random_uuid(), $1, $2, 'https://hooks.example.org/x', '{programme.created}', 'x',
		sha256('key'), 0, now())`,
		site.Fixture.WorkspaceID, sam.ID)
	replaced := `insert into account.audit_events (id, at, tenant_id, user_id, actor, action, subject, detail)
		select gen_random_uuid(), now() + n * interval '1 second', $1, $2, $3, $4, 'token:x',
			'{"reason": "replaced", "name": "Replaced before"}' from generate_series(1, $5) n`
	site.Fixture.Exec(replaced, site.Fixture.WorkspaceID, sam.ID, "user:"+sam.ID.String(), audit.TokenRevoked, 1)
	page := memberPath(site, sam)
	sheet := manager.Get(page).Send(members+"/remove", nil).Send(members+"/remove", nil).LeadsTo(page).Follow()
	sheet.Wants(http.StatusOK, "was removed.", "Former member", "by Ada Okafor", "Claude", "Nightly export",
		"pat.lee@example.org", "Accounts at Claude.", "What is left to do outside").Lacks("Replaced before", sam.Email)
	sheet.Lacks("hooks.example.org").Says("To see which webhooks ended, you need the permission “Manage API access”.")
	site.SignedIn(developer(site)).Get(page).Wants(http.StatusForbidden)
	site.SignedIn(site.Member(perm.AccountReadMembers)).Get(page).Wants(http.StatusOK, "Former member",
		"pat.lee@example.org", "To see which connected apps, tokens and webhooks ended, you need the permission").
		Lacks("Claude", "Nightly export", "hooks.example.org")
	reads := site.SignedIn(developer(site, perm.AccountReadMembers))
	reads.Get(page).Wants(http.StatusOK, "Claude", "Nightly export", "hooks.example.org").Lacks("To see which")
	reads.Get("/settings/audit").Contains(strings.ReplaceAll(page, "&", "&amp;"))
	site.SignedIn(developer(site)).Get("/settings/audit").Omits(members + "/member?")
	site.Fixture.Exec(`update account.users set deleted_at = now(), disabled_at = now(), password_hash = null,
		email = id || '@deleted.invalid', name = 'Deleted user' where id = $1`, sam.ID)
	// More than a list has, and later than what ended with the membership.
	other := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead)
	site.Fixture.Exec(`update account.oauth_clients set name = 'Ended before' where id = $1`, other.ID)
	site.Fixture.Exec(`insert into account.grants (id, kind, client_id, user_id, tenant_id, permissions, resource,
		state, generation, created_at, ends_at, revoked_at, revoke_reason) select gen_random_uuid(), kind, $2, user_id,
		tenant_id, permissions, resource, state, 1, created_at + n * interval '1 second', ends_at, revoked_at,
		'disconnected' from account.grants, generate_series(1, 201) n where user_id = $1`, sam.ID, other.ID)
	site.Fixture.Exec(replaced, site.Fixture.WorkspaceID, sam.ID, "user:"+sam.ID.String(), audit.TokenRevoked, 201)
	reads.Get(page).Wants(http.StatusOK, "A deleted user", "Claude", "Nightly export").
		Lacks("Deleted user", "Ended before")
	site.Fixture.Exec(`delete from account.audit_events where user_id = $1 and action = $2`, sam.ID,
		audit.MemberRemoved)
	site.Fixture.Exec(`insert into account.audit_events (id, at, tenant_id, user_id, actor, action, subject)
		values (gen_random_uuid(), now() - interval '91 days', $1, $2, 'admin', $4, $3)`,
		site.Fixture.WorkspaceID, sam.ID, "user:"+sam.ID.String(), audit.MemberRemoved)
	reads.Get(page).Follow().Wants(http.StatusOK, "no longer a member")
}
