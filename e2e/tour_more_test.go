package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/almonerhq/almoner/deploy/local/demo"
	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/mailbox"
)

const (
	onWebsite    = "a form on a website"
	oneOperation = "docs, one operation"
)

// longPages opens lists of more than one page, pages with a very long name, and Connected apps with several approvals
// and with ended ones.
func longPages(i *inspector, p *harness.Product, ws harness.TestWorkspace, user demo.User) {
	i.t.Helper()
	long := p.NewWorkspace(i.t)
	p.Database.Exec(i.t, `update account.tenants set name = $2 where id = $1`, long.Workspace.ID,
		strings.Repeat("Northumberland", 3)+" and Borders Community Food and Companionship")
	p.Database.Join(i.t, long.Workspace, user, harness.Everything()...)
	here := "?tenant=" + long.Workspace.ID
	for range 26 {
		p.Database.Token(i.t, long.Workspace, user, harness.ReadProgrammes)
		long.Member(i.t, harness.ReadProgrammes)
		long.Confidential(i.t, "", harness.ReadProgrammes)
	}
	for _, page := range []string{"/settings/developers", "/settings/applications", "/settings/members"} {
		i.Open(p.AppURL + page + here)
		i.See(".pager")
		i.look("26 rows of a workspace with a long name: " + page)
	}
	i.Open(p.AuthorizeURL(long.Connector(i.t, harness.ReadProgrammes).Begin().Query))
	i.See(approveButton)
	i.look("consent in a workspace with a long name")

	application := ws.Connector(i.t, harness.ReadProgrammes)
	for range 2 {
		application.Connect(i.t, p.Person(i.t, user))
	}
	i.Open(p.AppURL + "/settings/apps")
	i.See(`form[action="/settings/apps/disconnect-all"]`)
	i.look("connected apps, disconnect all")
	i.Click(`form[action="/settings/apps/disconnect-all"] button`)
	i.See("#ended")
	i.look("connected apps, ended")
}

// emptyPages opens lists without entries, as the owner of a new workspace and as a user without a workspace see them.
func emptyPages(i *inspector, p *harness.Product) {
	i.t.Helper()
	owner := p.NewWorkspace(i.t).Owner
	i.Open(p.AppURL + "/login")
	i.SignIn(owner.Email, owner.Password)
	i.See("#workspaces")
	for _, page := range []string{"apps", "applications", "connectors", "connectors/log", "members"} {
		i.Open(p.AppURL + "/settings/" + page)
		i.look("empty: " + strings.ReplaceAll(page, "/", " "))
	}
	i.Click(`form[action="/logout"] button`)
	alone := p.Database.User(i.t)
	i.SignIn(alone.Email, alone.Password)
	i.See("#workspaces")
	for _, page := range []string{"user", "connect", "developers"} {
		i.Open(p.AppURL + "/settings/" + page)
		i.look("no workspace: " + page)
	}
}

// webhookPages opens the pages of a webhook endpoint with a delivery in each state, and of a failing endpoint.
func webhookPages(i *inspector, p *harness.Product, here, endpoint string) {
	i.t.Helper()
	i.at(p.AppURL + "/settings/developers/webhook" + here + "&id=" + endpoint)
	p.Database.Exec(i.t, `insert into account.webhook_deliveries
		(id, webhook_id, tenant_id, cause, type, sequence, tried_at, status, took_ms, problem)
		select gen_random_uuid(), w.id, w.tenant_id, d.*
		from account.webhooks w, (values
			('event', $2, 7, now(), 500, 84, 'The endpoint answered with status 500.'),
			('resend', $2, 7, now(), 204, 31, null),
			('test', 'test', null, null, null, null, null)
		) d where w.id = $1`, endpoint, "programme.created")
	p.Database.Exec(i.t, `update account.webhooks set failing_since = now() - interval '1 day' where id = $1`, endpoint)
	i.Open(p.AppURL + "/settings/developers/webhook" + here + "&id=" + endpoint)
	i.look("webhook endpoint with deliveries")
	i.Open(p.AppURL + "/settings/webhooks" + here)
	i.look("webhooks, one failing")
	i.Open(p.AppURL + "/settings/webhooks/new" + here)
	i.Click(`form[action="/settings/developers/webhooks"] .button-main`)
	i.See("#problem")
	i.look("new webhook endpoint with errors")
}

// mailPages opens the page of make run that shows the mails, and a mail as mail programs show it, below its
// subject.
func mailPages(i *inspector, box *mailbox.Mailbox, user demo.User) {
	i.t.Helper()
	letter := mailTo(i.t, box, user.Email, "New connection")
	shown := strings.Replace(letter.HTML, "<div", "<main><h1>"+letter.Subject+"</h1><div", 1)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/mail" {
			box.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, shown)
	}))
	i.t.Cleanup(site.Close)
	i.at(site.URL + "/")
	i.at(site.URL + "/mail")
}

// errorPages opens pages about errors as a signed-in user sees them.
func errorPages(i *inspector, p *harness.Product, here string) {
	i.t.Helper()
	i.Open(p.AppURL + "/settings/nothing")
	i.See("#group-workspace")
	i.look("signed in: page not found")
	release := p.Database.Hold(i.t, `lock table account.oauth_clients in access exclusive mode`)
	i.Open(p.AppURL + "/settings/applications" + here)
	i.See("#group-workspace")
	i.look("signed in: unavailable")
	release()
}

// formPages opens a form in Welsh, and a form on a website.
func formPages(i *inspector, p *harness.Product, ws harness.TestWorkspace) {
	i.t.Helper()
	welsh, _ := formWithTexts(i.t, p, ws, "cy")
	i.at(p.BaseURL + "/v1/engage/public/forms/" + welsh + "/embed")
	var key string
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = fmt.Fprintf(w, `<!doctype html><html lang="en"><meta name="viewport" content="width=device-width">
			<title>Harbour Trust</title><link rel="icon" href="data:,">
			<body style="font-family:sans-serif"><main><h1>Harbour Trust</h1><p>A website with a white page.</p>
			<script src="%s/v1/engage/public/embed.js" data-form="%s" async></script></main>`, p.BaseURL, key)
	}))
	i.t.Cleanup(site.Close)
	key, _ = formWithTexts(i.t, p, ws, "en", site.URL)
	i.Open(site.URL)
	i.See("iframe")
	i.look(onWebsite)
}
