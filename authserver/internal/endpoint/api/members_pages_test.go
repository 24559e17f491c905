package api_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/almonerhq/almoner/shared/contract/perm"
)

// everyPage reads a list one record a page, and returns the text of a member of each record.
func (b *membersEnv) everyPage(path, member string) (all []string) {
	b.t.Helper()
	for query := "?limit=1"; query != ""; {
		a := b.send("GET", path+query, "")
		data, _ := a.Object()["data"].([]any)
		meta, _ := a.Object()["meta"].(map[string]any)
		if a.Status != 200 || len(data) > 1 || meta["count"] != float64(len(data)) {
			b.t.Fatalf("%s: %d %s", query, a.Status, a.Body)
		}
		for _, one := range data {
			all = append(all, fmt.Sprint(one.(map[string]any)[member]))
		}
		query = ""
		if next, more := meta["nextCursor"].(string); more {
			query = "?limit=1&cursor=" + next
		}
	}
	return all
}

func TestLists_Pages(t *testing.T) {
	b := newMembersEnv(t)
	for range 3 {
		b.Fixture.Member(perm.ProgrammesRead)
	}
	ids := b.everyPage("/members", "userId")
	slices.Sort(ids)
	if len(ids) != 4 || len(slices.Compact(ids)) != 4 {
		t.Errorf("%v", ids)
	}
	var want []string
	for i := range 3 {
		email := fmt.Sprintf("person-%d@example.org", i)
		a := b.send("POST", "/invitations", `{"email":"`+email+`","permissions":["programmes:read:programmes"]}`)
		if a.Status != 201 {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
		want = append([]string{email}, want...)
	}
	if got := b.everyPage("/invitations", "email"); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	foreign := b.send("GET", "/members?limit=1", "").Object()["meta"].(map[string]any)["nextCursor"].(string)
	b.wants("a cursor of another list", b.send("GET", "/invitations?cursor="+foreign, ""), 400, "invalid_request")
	b.wants("an unknown field", b.send("GET", "/members?fields=userId,url", ""), 400, "invalid_request")
	b.wants("a link", b.send("GET", "/invitations?fields=url", ""), 400, "invalid_request")
	a := b.send("GET", "/members?limit=1&fields=userId", "")
	if one, _ := a.Object()["data"].([]any)[0].(map[string]any); len(one) != 1 || one["userId"] == nil {
		t.Errorf("%s", a.Body)
	}
}
