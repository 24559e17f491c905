package torture

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/PuerkitoBio/goquery"

	"github.com/almonerhq/almoner/e2e/harness"
)

// pagesAtMost is how many pages of each path are opened.
const pagesAtMost = 3

// readsEnd sends each read of the crowded workspace while its events have no sequence, and opens each of its pages.
func (c *crowded) readsEnd(t *testing.T) {
	t.Helper()
	c.addEvents(t, c.sizes.events/10)
	account := "/v1/account/tenants/" + c.ws.Workspace.ID
	form := "/v1/engage/forms/" + c.form
	for _, path := range []string{
		eventsPath, eventsPath + "?limit=200&after=0", webhooksPath, "/v1/me", harness.ListPath,
		"/v1/engage/forms", form, form + "/submissions?limit=200",
		form + "/submissions?updatedSince=" + url.QueryEscape(time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)),
		"/v1/engage/supporters",
	} {
		c.ends(t, "GET "+path, c.api.Get(t, path))
	}
	caller := c.p.As(c.ws.Token)
	for _, path := range []string{
		account + "/members", account + "/members?limit=200", account + "/invitations",
		c.ws.Clients(), c.ws.Clients() + "/" + c.client,
	} {
		c.ends(t, "GET "+path, caller.Get(t, path))
	}
	c.pagesEnd(t)
}

// ends checks that a request was answered as if the workspace were small.
func (c *crowded) ends(t *testing.T, request string, answer harness.Answer) {
	t.Helper()
	if answer.Status >= http.StatusBadRequest {
		t.Errorf("%s does not end well in a large workspace:\n%s", request, answer)
	}
}

// pagesEnd opens the pages to which the owner's pages lead.
func (c *crowded) pagesEnd(t *testing.T) {
	t.Helper()
	owner := c.p.Person(t, c.ws.Owner).SignedIn(t)
	opened, seen := map[string]int{}, map[string]bool{}
	waiting := []string{"/settings/user", "/settings/members?tenant=" + c.ws.Workspace.ID,
		"/settings/developers?tenant=" + c.ws.Workspace.ID}
	for len(waiting) > 0 {
		path := waiting[0]
		waiting = waiting[1:]
		below, _, _ := strings.Cut(path, "?")
		if seen[path] || opened[below] == pagesAtMost {
			continue
		}
		seen[path] = true
		opened[below]++
		page := owner.Open(t, c.p.AppURL+path)
		c.ends(t, "the page "+below, page.Answer)
		page.Find("a[href^='/settings']").Each(func(_ int, link *goquery.Selection) {
			if href, found := link.Attr("href"); found {
				next, _, _ := strings.Cut(href, "#")
				waiting = append(waiting, next)
			}
		})
	}
	if len(opened) < 8 {
		t.Errorf("%d pages were opened: %v", len(opened), opened)
	}
}

// writesEnd makes the changes that concern many records: an endpoint is added during a backlog, the connector policy is
// lowered, a member and then an application with many connections are removed. What the request does not end itself is
// refused at once, and ended in the background.
func (c *crowded) writesEnd(t *testing.T) string {
	t.Helper()
	c.addEvents(t, c.sizes.events/10)
	c.hook(t, "/late", "programme.created")
	caller := c.p.As(c.ws.Token)
	var took []string
	for _, change := range []struct {
		name, path, active string
		do                 func(t *testing.T)
	}{
		{name: "a policy", active: "ends_at > created_at + interval '7 days'", do: func(t *testing.T) {
			c.p.LimitConnectors(t, c.ws, "7", []string{"claude", "chatgpt", "other"}, []string{harness.ReadProgrammes})
		}},
		{name: "a member", path: "/v1/account/tenants/" + c.ws.Workspace.ID + "/members/" + c.member,
			active: "user_id = '" + c.member + "'"},
		{name: "an application", path: c.ws.Clients() + "/" + c.client, active: "client_id = '" + c.client + "'"},
	} {
		began := time.Now()
		if change.do != nil {
			change.do(t)
		} else {
			c.ends(t, "DELETE of "+change.name, caller.Send(t, http.MethodDelete, change.path, "", ""))
		}
		took = append(took, change.name+" "+time.Since(began).Round(time.Millisecond).String())
		for _, path := range []string{c.ws.Clients(), "/v1/account/tenants/" + c.ws.Workspace.ID + "/members"} {
			c.ends(t, "GET "+path+" after a change of "+change.name, caller.Get(t, path))
		}
		c.workEnds(t)
		if n := c.p.Database.Count(t, `select count(*) from account.grants where tenant_id = $1
			and state = 'active' and `+
			change.active, c.ws.Workspace.ID); n != 0 {
			t.Errorf("%d connections are left by a change of %s", n, change.name)
		}
	}
	if n := len(c.receiver.At("/late")); n != 0 {
		t.Errorf("a new endpoint got %d events of before", n)
	}
	return "changes took: " + strings.Join(took, ", ")
}

// erasureEnds deletes the form. More than 1,000 submissions are erased after a 202 (contract, section 6a).
func (c *crowded) erasureEnds(t *testing.T) string {
	t.Helper()
	began := time.Now()
	answer := c.api.Send(t, http.MethodDelete, "/v1/engage/forms/"+c.form, "", "")
	c.ends(t, "DELETE of a form", answer)
	if answer.Status == http.StatusAccepted {
		address, _ := answer.Object(t)["statusUrl"].(string)
		path := strings.TrimPrefix(address, c.p.BaseURL)
		c.api.Get(t, "/v1/engage/forms/"+c.form+"/submissions").Wants(t, http.StatusNotFound)
		for end := time.Now().Add(backlogEnds); time.Now().Before(end); time.Sleep(often) {
			if answer = c.api.Get(t, path).Wants(t, http.StatusOK); answer.Object(t)["status"] != "accepted" {
				break
			}
		}
	}
	if answer.Status == http.StatusOK {
		if n := answer.Object(t)["deletedSubmissions"]; n != float64(c.sizes.submissions) {
			t.Errorf("the erasure of %d submissions ended with %s", c.sizes.submissions, answer)
		}
	}
	return fmt.Sprintf("the form was erased in %s", time.Since(began).Round(time.Second))
}
