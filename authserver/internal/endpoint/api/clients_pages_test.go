package api_test

import (
	"strings"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
)

// page returns the names of a page of the list and its next cursor.
func page(a apitest.Answer) (names []string, next string) {
	data, _ := a.Object()["data"].([]any)
	for _, one := range data {
		name, _ := one.(map[string]any)["name"].(string)
		names = append(names, name)
	}
	meta, _ := a.Object()["meta"].(map[string]any)
	next, _ = meta["nextCursor"].(string)
	return names, next
}

func TestList_Pages(t *testing.T) {
	t.Parallel()
	b := newClientsEnv(t)
	var want []string
	for _, name := range []string{"One", "Two", "Three", "Four", "Five"} {
		b.registered(confidential(fields{"name": name}))
		want = append([]string{name}, want...)
	}
	var got []string
	query := "?limit=2"
	for range 3 {
		names, next := page(b.send("GET", b.path()+query, ""))
		got = append(got, names...)
		// A client that is registered meanwhile is newer than the position, so it moves no other.
		b.registered(confidential(fields{"name": "Later"}))
		query = "?limit=2&cursor=" + next
		if next == "" {
			query = "end"
		}
	}
	if strings.Join(got, " ") != strings.Join(want, " ") || query != "end" {
		t.Errorf("%v, want %v", got, want)
	}
	_, next := page(b.send("GET", b.path()+"?limit=1", ""))
	invitations := strings.Replace(b.path(), "oauth-clients", "invitations", 1)
	for _, path := range []string{
		b.path() + "?limit=0",
		b.path() + "?limit=-1",
		b.path() + "?limit=x",
		b.path() + "?limit=",
		b.path() + "?cursor=",
		b.path() + "?cursor=" + next + "A",
		b.path() + "?fields=clientSecret",
		invitations + "?limit=0",
	} {
		a := b.send("GET", path, "")
		if strings.HasPrefix(path, invitations) && a.Status == 403 {
			continue // the registrar may not read them
		}
		if text, _ := a.Object()["error_description"].(string); a.Status != 400 || text == "" {
			t.Errorf("%s: %d %s", path, a.Status, a.Body)
		}
	}
	if a := b.send("GET", b.path()+"?limit=100000&fields=name,kind", ""); a.Status != 200 ||
		!strings.HasPrefix(a.Body, `{"data":[{"kind":"confidential","name":"Later"},`) {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	if a := b.send("GET", b.path()+"?fields=name,secret", ""); !strings.Contains(a.Body, "secret") || a.Status != 400 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}
