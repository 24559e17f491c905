package app_test

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/pat"
	"github.com/almonerhq/almoner/authserver/internal/account/usage"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

const tenMinutes = 10 * time.Minute // as long as no test runs

// connection creates an app, which returns the browser to the address, and its connection, from how long ago and until
// when.
func (s *site) connection(who browsertest.Person, app, callback string, age, left time.Duration) uuid.UUID {
	s.t.Helper()
	kind, platform, resource, method := standing.Connector, "claude", "https://api.example.org/mcp", "none"
	if strings.HasPrefix(app, "Web") {
		kind, platform, resource, method = standing.Confidential, "", "", "client_secret_json"
	}
	id := uuid.New()
	s.fixture.Exec(`insert into account.oauth_clients (id, kind, tenant_id, name, redirect_uris, required_permissions,
		connector_platform, resource, token_endpoint_auth_method)
		values ($1, $2, $3, $4, array[$5], '{programmes:read:programmes}', nullif($6, ''), nullif($7, ''), $8)`,
		id, kind, s.fixture.WorkspaceID, app, callback, platform, resource, method)
	s.fixture.Exec(`insert into account.grants (id, kind, client_id, user_id, tenant_id, permissions, resource, state,
		generation, created_at, ends_at) values ($1, $2, $1, $3, $4, '{programmes:read:programmes}', 'r', 'active', 1,
		now() - $5::interval, now() + $6::interval)`, id, kind, who.ID, s.fixture.WorkspaceID, age, left)
	return id
}

// tokenID returns the id of the personal access token with a name.
func (s *site) tokenID(name string) uuid.UUID {
	s.t.Helper()
	return read[uuid.UUID](s, `select id from account.personal_access_tokens where name = $1`, name)
}

// together calls the functions at once.
func together(all ...func()) {
	var running sync.WaitGroup
	for _, f := range all {
		running.Go(f)
	}
	running.Wait()
}

// usedFrom records uses of credentials from an address in a process of each service at once.
func (s *site) usedFrom(address string, used ...standing.Standing) {
	s.t.Helper()
	var flushes []func()
	for _, url := range []string{s.fixture.Database.Authserver, s.fixture.Database.Resourceapi} {
		pool, err := pgxpool.New(s.t.Context(), url)
		s.must(err)
		defer pool.Close()
		recorder := standing.NewLastUseRecorder(pool, slog.New(slog.NewTextHandler(s.t.Output(), nil)))
		for _, one := range used {
			recorder.Record(one, netip.MustParseAddr(address))
		}
		flushes = append(flushes, recorder.Close)
	}
	together(flushes...)
}

// The services are the test's own: it waits for all jobs, and three processes queue the mails.
func TestNetworks_NewOneIsMailedOnce(t *testing.T) {
	s := ownMailing(t)
	who, quiet, disabled := s.member(perm.ProgrammesRead), s.person(), s.person()
	s.fixture.Exec(`insert into account.unwanted_mails values ($1, 'new_network')`, quiet.ID)
	s.fixture.Exec(`update account.users set disabled_at = now() where id = $1`, disabled.ID)
	var all []standing.Standing
	use := func(by browsertest.Person, kind string, id uuid.UUID) {
		all = append(all, standing.Standing{
			CredentialID:        id,
			Kind:                kind,
			CredentialWorkspace: s.fixture.WorkspaceID,
			UserID:              by.ID,
		})
	}
	s.fixture.Exec(`update account.finished_upgrades set finished_at = now() - interval '2 days'
		where name = 'networks_recorded'`)
	s.token(who, "older than the record", 72*time.Hour, time.Hour)
	use(who, standing.PersonalAccessToken, s.tokenID("older than the record"))
	for _, name := range []string{"script", "revoked", "expired"} {
		s.token(who, name, time.Hour, time.Hour)
		use(who, standing.PersonalAccessToken, s.tokenID(name))
	}
	s.fixture.Exec(`update account.personal_access_tokens set revoked_at = now() where name = 'revoked'`)
	s.fixture.Exec(`update account.personal_access_tokens set expires_at = now() where name = 'expired'`)
	for name, by := range map[string]browsertest.Person{"quiet": quiet, "disabled": disabled} {
		s.token(by, name, time.Hour, time.Hour)
		use(by, standing.PersonalAccessToken, s.tokenID(name))
	}
	use(who, standing.Connector, s.connection(who, "Helper", "http://127.0.0.1/", time.Hour, time.Hour))
	use(who, standing.Confidential, s.connection(who, "Web sync", "https://a.example/", time.Hour, time.Hour))
	disconnected := s.connection(who, "Disconnected", "http://127.0.0.1/", time.Hour, time.Hour)
	use(who, standing.Connector, disconnected)
	s.fixture.Exec(`update account.grants set state = 'revoked', revoked_at = now() where id = $1`, disconnected)

	for _, address := range []string{"203.0.113.7", "203.0.113.200", "2001:db8:7::1", "2001:db8:7:8::9"} {
		s.usedFrom(address, all...)
	}
	queue := func() { s.must(s.Store.QueueNetworkMails(t.Context())) }
	together(queue, queue)
	s.awaitNetworks()
	const ofToken = "A personal access token was used from a new network"
	const ofApp = "A connected app was used from a new network"
	tokens, apps := s.letters("", ofToken), s.letters("", ofApp)
	equal(t, "mails about tokens", len(tokens), 1)
	equal(t, "mails about apps", len(apps), 2)
	s.rows(2, "credential_networks", `credential_id = $1`, s.tokenID("script"))
	var told strings.Builder
	for _, m := range append(tokens, apps...) {
		equal(t, "the recipient", m.To, who.Email)
		contains(t, "the mail", m.Text, "Network: 2001:db8:7::/48\n")
		contains(t, "the mail", m.Text, "Almoner · Riverside Food Bank")
		told.WriteString(m.Text + s.link(m) + "\n")
	}
	page := s.signedIn(who).Get(s.link(tokens[0]))
	s.wants("the page of the token", page, 200, "script", "2001:db8:7::/48")
	for _, want := range []string{"token script accessed", "Helper accessed", "Web sync accessed"} {
		equal(t, "mails in which "+want, strings.Count(told.String(), want), 1)
	}
}

// awaitNetworks waits until no network is due a mail, and no mail waits.
func (s *site) awaitNetworks() {
	s.t.Helper()
	await.True(s.t, "no network is due a mail", func() bool {
		return read[int](s, `select count(*) from account.credential_networks where mail_due`) == 0
	})
	s.awaitJobs("mail")
}

func TestNetworks_AtMostFiveMailsADayAndOneAboutMany(t *testing.T) {
	s := ownMailing(t)
	who := s.person()
	s.token(who, "script", time.Hour, 24*time.Hour)
	s.fixture.Exec(`delete from account.finished_upgrades where name = 'networks_recorded'`)
	used := standing.Standing{
		CredentialID:        s.tokenID("script"),
		Kind:                standing.PersonalAccessToken,
		CredentialWorkspace: s.fixture.WorkspaceID,
		UserID:              who.ID,
	}
	const ofMany = "A personal access token was used from many new networks"
	mailed := func() string {
		s.awaitNetworks()
		single := s.letters(who.Email, "A personal access token was used from a new network")
		return fmt.Sprint(len(single), " and ", len(s.letters(who.Email, ofMany)))
	}
	from := func(first, n int) {
		for i := range n {
			s.usedFrom(fmt.Sprintf("10.0.%d.1", first+i), used)
		}
	}
	from(0, 6)
	equal(t, "mails about five networks", mailed(), "5 and 0")
	later := func(by string) {
		s.fixture.Exec(`update account.credential_networks set mailed_at = mailed_at - $1::interval`, by)
	}
	later("20 hours") // the week begins with the mail about many
	from(6, 2)
	equal(t, "mails about seven", mailed(), "5 and 1")
	many := s.letters(who.Email, ofMany)[0]
	contains(t, "the mail about many", many.Text, "from more than five new networks in 24 hours.")
	contains(t, "the mail about many", many.Text, "/settings/tokens/token?id="+used.CredentialID.String())
	equal(t, "whether it names one", strings.Contains(many.Text, "Network:"), false)
	from(8, 1)
	equal(t, "mails about eight", mailed(), "5 and 1")
	later("6 days 12 hours")
	from(9, 1)
	equal(t, "mails six days after the one about many", mailed(), "5 and 1")
	later("25 hours")
	from(100, 7)
	equal(t, "mails a week later", mailed(), "10 and 2")
	// No process has queued mails for days.
	s.fixture.Exec(`update account.credential_networks set mail_due = true, first_used_at = now() - interval '49 hours',
		mailed_at = null where not is_first or mails > 0`)
	equal(t, "mails about what was long ago", mailed(), "10 and 2")
	found, err := s.Store.Networks(t.Context(), s.fixture.WorkspaceID, used.CredentialID)
	s.must(err)
	equal(t, "networks", len(found), 17)
	equal(t, "the latest", found[0].Network, netip.MustParsePrefix("10.0.106.0/24"))
	other, err := s.Store.Networks(t.Context(), s.fixture.Workspace("Elsewhere"), used.CredentialID)
	equal(t, "networks in another workspace", fmt.Sprint(len(other), err), "0 <nil>")
}

// Every credential ends before the last of its networks is forgotten: a network that is noted as its first is the very
// first.
func TestNetworks_AreKeptLongerThanCredentials(t *testing.T) {
	for _, kind := range []client.Kind{client.Confidential, client.Connector} {
		if life := kind.Traits().GrantLife; life <= 0 || life >= usage.Kept {
			t.Errorf("a grant of the kind %s lasts %s", kind, life)
		}
	}
	if days := slices.Max(pat.Lifetimes()); time.Duration(days)*24*time.Hour >= usage.Kept {
		t.Errorf("a personal access token lasts %d days", days)
	}
}

// Connections of 30 days, 7 days and a day, and those whose user gets no mail.
func TestConnections_EndIsMailedTwice(t *testing.T) {
	s := ownMailing(t)
	const day = 24 * time.Hour
	who, quiet, disabled := s.member(perm.ProgrammesRead), s.person(), s.person()
	s.fixture.Exec(`insert into account.unwanted_mails values ($1, 'connection_ending')`, quiet.ID)
	s.fixture.Exec(`update account.users set disabled_at = now() where id = $1`, disabled.ID)
	const claude, chatgpt, local = "https://claude.ai/api/mcp/auth_callback",
		"https://chatgpt.com/connector_platform_oauth_redirect", "http://127.0.0.1:8090/callback"
	add := func(name, callback string, age, left time.Duration) uuid.UUID {
		return s.connection(who, name, callback, age, left)
	}
	add("Thirty in a week", claude, 23*day, 7*day-time.Minute)
	add("Thirty in two days", chatgpt, 28*day, 2*day)
	add("Thirty in a day", local, 29*day, day-time.Minute)
	add("Seven in a day", "https://evil.example/", 6*day, day-time.Minute)
	web := add("Web ninety in a week", "https://crm.example.org/", 83*day, 7*day-time.Minute)
	add("Thirty in eight days", local, 22*day, 7*day+tenMinutes)
	add("Thirty in ten", local, 20*day, 10*day)
	add("Seven in six", local, day, 6*day)
	add("One in a day", local, time.Minute, day-time.Minute)
	add("Ended", local, 30*day, -time.Minute)
	s.fixture.Exec(`update account.grants set state = 'revoked', revoked_at = now() where id = $1`,
		add("Revoked", local, 28*day, 2*day))
	s.fixture.Exec(`update account.grants set state = 'pending', generation = 0 where id = $1`,
		add("Not redeemed", local, 28*day, 2*day))
	s.connection(quiet, "Quiet", local, 28*day, 2*day)
	s.connection(disabled, "Disabled", local, 28*day, 2*day)

	const subject = "A connected app is about to lose access"
	texts := func() (all string) {
		t.Helper()
		remind := func() { s.must(s.Store.MailEndingConnections(t.Context())) }
		together(remind, remind)
		s.awaitJobs("mail")
		for _, m := range s.letters("", subject) {
			equal(t, "the recipient", m.To, who.Email)
			all += m.Text
		}
		return all
	}
	told := texts()
	for name, link := range map[string]string{
		"Thirty in a week":     "https://claude.ai",
		"Thirty in two days":   "https://chatgpt.com",
		"Thirty in a day":      s.url + "/settings/connect",
		"Seven in a day":       s.url + "/settings/connect",
		"Web ninety in a week": s.url + "/settings/apps/app?id=" + web.String(),
	} {
		_, after, _ := strings.Cut(told, "The access of "+name+" to the workspace Riverside Food Bank ends on ")
		_, after, _ = strings.Cut(after, "Connect again:\n")
		got, _, _ := strings.Cut(after, "\n")
		equal(t, "the link about "+name, got, link)
	}
	equal(t, "mails", strings.Count(told, "The access of "), 5)
	equal(t, "mails after another pass", strings.Count(texts(), "The access of "), 5)

	// The rules for assistants shorten the connection of ten days ago, which ends in 12 hours now.
	shortened := s.connection(who, "Shortened", local, 10*day-12*time.Hour, 20*day+12*time.Hour)
	policy := workspace.ConnectorPolicy{
		Platforms:   workspace.Platforms(),
		Permissions: perm.ForConnectors(),
		Days:        10,
	}
	event := audit.ByOperator().Event(audit.ConnectorPolicyChanged, "tenant:"+s.fixture.WorkspaceID.String(), nil, nil)
	event.WorkspaceID = &s.fixture.WorkspaceID
	_, err := s.Store.ReplaceConnectorPolicy(t.Context(), s.fixture.WorkspaceID, "", policy, event)
	s.must(err)
	s.rows(1, "grants", `id = $1 and state = 'active' and ends_at < now() + interval '1 day'`, shortened)
	// Six days later.
	s.fixture.Exec(`update account.grants set created_at = created_at - interval '6 days', ends_at = ends_at - interval
		'6 days' where client_id in (select id from account.oauth_clients where name like 'Web%')`)
	told = texts()
	equal(t, "mails about the shortened one", strings.Count(told, "The access of Shortened "), 1)
	equal(t, "mails 7 days and a day before the end", strings.Count(told, "The access of Web "), 2)
	equal(t, "all mails", strings.Count(told, "The access of "), 7)
}
