package bench

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// A row is a list, a page or a search that is measured with little and with much data.
type row struct {
	what string
	// page is the path of a page that a person opens at authserver, account and lists those of an API. One of them is
	// set; @workspace, @form and @endpoint stand for the ids of the seeded ones.
	page, account, lists string
	// seeded says how many rows there are where the product has a limit, or "".
	seeded string
	// connections are those that ask at once; 0 for growthConnections.
	connections int
}

// rowsOf returns the rows of everything that a person or a program can list or search.
func rowsOf() []row {
	const people, name, nobody = "person=", "Person+77", "zebra+crossing"
	rows := []row{
		{what: "connections", page: "/settings/connectors?tenant=@workspace"},
		{what: "tokens", page: "/settings/developers?tenant=@workspace", seeded: "500 are the person's own"},
		{what: "members", page: "/settings/members?tenant=@workspace"},
		{what: "members, search that finds few", page: "/settings/members?tenant=@workspace&q=" + name},
		{what: "members, search that finds none", page: "/settings/members?tenant=@workspace&q=" + nobody},
		{what: "members, API", account: "members?limit=50"},
		{what: "invitations, API", account: "invitations?limit=50", seeded: "1,000 are open, the limit of a workspace"},
		{what: "audit log", page: "/settings/audit?tenant=@workspace"},
		{what: "connection log", page: "/settings/connectors/log?tenant=@workspace"},
		{what: "webhooks and deliveries, page", page: "/settings/developers/webhook?tenant=@workspace&id=@endpoint"},
		{what: "events", lists: "/v1/events?limit=50"},
		{what: "forms", lists: "/v1/engage/forms?limit=50"},
		{what: "submissions", lists: "/v1/engage/forms/@form/submissions?limit=50"},
		{what: "submissions, rejected", lists: "/v1/engage/forms/@form/submissions?limit=50&status=rejected"},
		{
			what:  "submissions, changed lately",
			lists: "/v1/engage/forms/@form/submissions?limit=50&updatedSince=@lately",
		},
		{what: "supporters", lists: "/v1/engage/supporters?limit=50"},
		{what: "webhooks", lists: "/v1/webhooks?limit=50", seeded: "20, the limit of a workspace"},
		{what: "deliveries", lists: "/v1/webhooks/@endpoint/deliveries?limit=50"},
		{what: "an import", lists: "/v1/programmes/programmes/imports/@import"},
	}
	for _, log := range []struct{ what, page string }{
		{"audit log", "/settings/audit?tenant=@workspace&"},
		{"connection log", "/settings/connectors/log?tenant=@workspace&"},
	} {
		rows = append(rows,
			row{what: log.what + ", search for a person with few entries", page: log.page + people + name},
			row{what: log.what + ", search for nobody", page: log.page + people + nobody},
			row{what: log.what + ", search for the most used application", page: log.page + "application=Assistant+1"},
			row{what: log.what + ", search by request ID", page: log.page + "request=@request"})
	}
	const connections = "/settings/connectors?tenant=@workspace&q="
	return append(rows,
		row{what: "connections, search that finds many", page: connections + "Assistant"},
		row{what: "connections, search that finds few", page: connections + name},
		row{what: "connections, search that finds none", page: connections + nobody},
		row{
			what:        "programmes, search that finds many",
			lists:       "/v1/programmes/programmes?limit=50&q=lunch",
			connections: searches,
		},
		row{
			what:        "programmes, search that finds none",
			lists:       "/v1/programmes/programmes?limit=50&q=zebra",
			connections: searches,
		})
}

// growthConnections is the number of connections at which pages are opened and lists read.
const growthConnections = 8

// searches is the number of searches of a workspace's programmes that run at once (contract, section 6).
const searches = 2

// load returns the requests of a row.
func (e *seededStack) load(ctx context.Context, t *testing.T, db *pgx.Conn, r row, cookies string) load {
	t.Helper()
	workspace := e.product.Demo.Workspaces.Main.ID
	found := func(expression string) string {
		var out string
		must(t, db.QueryRow(ctx, "select ("+expression+")::text").Scan(&out))
		return out
	}
	fill := strings.NewReplacer("@workspace", workspace, "@form", found(nth("form", "1")),
		"@endpoint", found(nth("endpoint", "1")), "@import", found(nth("import", "1")),
		"@request", found(nth("request", "7")), "@lately", url.QueryEscape(time.Now().UTC().Format(time.RFC3339)))
	at, path, header := e.account, fill.Replace(r.page), http.Header{"Cookie": {cookies}}
	if r.page == "" {
		path = fill.Replace(r.lists)
		header = http.Header{"Authorization": {"Bearer " + e.product.Demo.Tokens.Owner}, "X-Tenant-Id": {workspace}}
	}
	switch {
	case r.account != "":
		path = "/v1/account/tenants/" + workspace + "/" + r.account
	case r.lists != "":
		at = e.lists
	}
	return load{what: r.what, at: at, worker: constant(func() *http.Request {
		request, _ := http.NewRequest(http.MethodGet, at.url+path, nil) // the arguments are constant
		request.Header = header
		return request
	})}
}

// rows measures each row in turn, and then each job, and writes their table.
func (r *report) rows(t *testing.T, stacks []*seededStack) {
	ctx := context.WithoutCancel(t.Context())
	var loads [2][]load
	var dbs [2]*pgx.Conn
	for i, e := range stacks {
		e.signIn(t)
		dbs[i] = e.superuser(ctx, t)
		defer func() { _ = dbs[i].Close(ctx) }()
		for _, row := range rowsOf() {
			loads[i] = append(loads[i], e.load(ctx, t, dbs[i], row, e.owner.Cookies()))
		}
	}
	r.line("\nPages are opened by a person who is signed in, lists are read with a personal access token, by %d "+
		"connections", growthConnections)
	r.line("(programmes searched by %d); a job does a fixed amount of due work in each of %d runs. Cost is the "+
		"processor time of the", searches, *rounds)
	r.line("service and of Postgres, in microseconds a request.\n")
	r.line("| what | little, a second | much, a second | cost, little | cost, much | much of little | at least 0.85 " +
		"| limit |\n|---|--:|--:|--:|--:|--:|---|---|")
	for n, row := range rowsOf() {
		r.row(t, row, loads[0][n], loads[1][n])
	}
	for n := range stacks[0].jobs() {
		r.job(t, stacks, dbs, n)
	}
}

// row measures a row of both installations in turn.
func (r *report) row(t *testing.T, what row, little, much load) {
	all, connections := results{}, cmp.Or(what.connections, growthConnections)
	for _, l := range []load{little, much} {
		_, err := l.try(t, connections, time.Second) // warms up
		if err != nil {
			_, err = l.try(t, connections, time.Second)
		}
		if err != nil {
			r.line("| %s | | | | | %v | no | %s |", what.what, err, what.seeded)
			t.Log(what.what, err)
			return
		}
	}
	for range *rounds {
		for _, l := range []load{little, much} {
			k := key{l.what, l.at.name, connections}
			s, err := l.try(t, connections, *each)
			if err != nil {
				r.line("| %s | | | | | %v | no | %s |", what.what, err, what.seeded)
				return
			}
			all[k] = append(all[k], s)
		}
	}
	of := func(l load) key { return key{l.what, l.at.name, connections} }
	cost := func(l load) float64 {
		return all.median(of(l), func(s sample) float64 { return s.cost(0) + s.cost(1) })
	}
	ratio := all.ratio(of(much), of(little))
	t.Logf("%s: %.2f", what.what, ratio)
	r.line("| %s | %.0f | %.0f | %.0f | %.0f | %.2f | %s | %s |", what.what, all.median(of(little), sample.perSecond),
		all.median(of(much), sample.perSecond), cost(little), cost(much), ratio, yesNo(ratio >= 0.85),
		what.seeded)
}

func yesNo(met bool) string { return map[bool]string{true: "yes", false: "no"}[met] }

// job runs a job of both installations in turn.
func (r *report) job(t *testing.T, stacks []*seededStack, dbs [2]*pgx.Conn, n int) {
	var took [2][]float64
	for range *rounds {
		for i, e := range stacks {
			took[i] = append(took[i], e.jobs()[n].run(t, dbs[i]).Seconds()*1e3)
		}
	}
	little, much := middle(took[0]), middle(took[1])
	t.Logf("%s: %.2f", stacks[0].jobs()[n].what, little/much)
	r.line("| %s | %.0f ms | %.0f ms | | | %.2f | %s | |", stacks[0].jobs()[n].what, little, much, little/much,
		yesNo(little/much >= 0.85))
}
