package e2e

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Spec 4.1 ("A bad cursor yields 400") and contract, section 6: invalid parameters and cursors.

func TestList_RejectsInvalidParameters(t *testing.T) {
	t.Parallel()
	p := enter(t)
	for _, query := range []string{
		"limit=0", "limit=-1", "limit=", "limit=ten", "limit=1.5", "limit=1e2", "limit=0x10", "limit=%201",
		"limit=-99999999999999999999", "limit=NaN", "limit=1%00", "cursor=", "cursor=nonsense", "cursor=%00",
		"cursor=bnVsbA", "status=", "status=Active", "status=deleted", "status=active'--",
	} {
		t.Run(query, func(t *testing.T) {
			mainReader(p).Get(t, programmes+"?"+query).WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")
		})
	}
}

// "Unknown query parameters and unknown JSON members are 400 VALIDATION_ERROR and named."
func TestParameters_UnknownNamesAreRejected(t *testing.T) {
	t.Parallel()
	p := enter(t)
	owner := p.In(p.Demo.Workspaces.Main, p.Demo.Tokens.Owner)
	for name, answer := range map[string]harness.Answer{
		"sort":  owner.Get(t, programmes+"?sort=name"),
		"Limit": owner.Get(t, programmes+"?Limit=5"),
		"startson": owner.Send(t, http.MethodPost, programmes, "application/json",
			`{"name":"Never made","startson":"2026-11-01"}`),
		"captcha": p.API().Get(t, "/v1/engage/public/forms/"+p.Demo.Engage.EmbedKey+"?captcha=1"),
	} {
		answer.WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")
		if !strings.Contains(string(answer.Body), `"`+name+`":`) {
			t.Errorf("the error does not name %s:\n%s", name, answer)
		}
	}
}

func TestList_LimitBounds(t *testing.T) {
	t.Parallel()
	p := enter(t)
	for limit, want := range map[string]int{
		"1":                    1,
		"199":                  199,
		"200":                  200,
		"201":                  200,
		"1000000":              200,
		"99999999999999999999": 200,
	} {
		if got := len(list(t, mainReader(p), url.Values{"limit": {limit}}).Data); got != want {
			t.Errorf("limit %s: %d programmes, want %d", limit, got, want)
		}
	}
	if got := len(list(t, mainReader(p), nil).Data); got != 50 {
		t.Errorf("no limit: %d programmes, want 50", got)
	}
}

// cursorOf returns a cursor of the list with these parameters.
func cursorOf(t *testing.T, api harness.API, query url.Values) string {
	t.Helper()
	next := list(t, api, query).Meta.NextCursor
	if next == nil || *next == "" {
		t.Fatal("no cursor although more pages follow")
	}
	return *next
}

func TestCursor_IsAuthenticated(t *testing.T) {
	t.Parallel()
	p := enter(t)
	cursor := cursorOf(t, mainReader(p), nil)
	for name, wrong := range map[string]string{
		"altered at the end":   alterLast(cursor),
		"altered at the start": alterAt(cursor, 0),
		"altered within":       alterAt(cursor, len(cursor)/2),
		"cut":                  cursor[:len(cursor)-1],
		"longer":               cursor + "A",
		"twice":                cursor + cursor,
		"padded":               cursor + "=",
		"line break":           cursor + "\n",
		"capitals":             strings.ToUpper(cursor),
		"space":                " " + cursor,
		"trailing bits":        lastBitFlipped(cursor),
	} {
		t.Run(name, func(t *testing.T) {
			mainReader(p).Get(t, programmes+"?"+url.Values{"cursor": {wrong}}.Encode()).
				WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")
		})
	}
	list(t, mainReader(p), url.Values{"cursor": {cursor}})
}

// A cursor is "bound to workspace and filters" and is invalid for another list.
func TestCursor_BoundToWorkspaceAndFilters(t *testing.T) {
	t.Parallel()
	p := enter(t)
	owner := p.In(p.Demo.Workspaces.Main, p.Demo.Tokens.Owner)
	plain := cursorOf(t, owner, url.Values{"limit": {"5"}})
	active := cursorOf(t, owner, url.Values{"limit": {"5"}, "status": {"active"}})
	search := cursorOf(t, owner, url.Values{"limit": {"5"}, "q": {"a"}})
	for name, c := range map[string]struct {
		api   harness.API
		query url.Values
	}{
		"another workspace": {
			p.In(p.Demo.Workspaces.Empty, p.Demo.Tokens.OwnerIn.Empty),
			url.Values{"cursor": {plain}},
		},
		"another with rows": {
			p.In(p.Demo.Workspaces.LLMDisabled, p.Demo.Tokens.OwnerIn.LLMDisabled),
			url.Values{"cursor": {plain}},
		},
		"a filter more":      {owner, url.Values{"cursor": {plain}, "status": {"active"}}},
		"a search more":      {owner, url.Values{"cursor": {plain}, "q": {"a"}}},
		"a filter less":      {owner, url.Values{"cursor": {active}}},
		"another filter":     {owner, url.Values{"cursor": {active}, "status": {"draft"}}},
		"another search":     {owner, url.Values{"cursor": {search}, "q": {"b"}}},
		"filter for search":  {owner, url.Values{"cursor": {search}, "status": {"active"}}},
		"search for filter":  {owner, url.Values{"cursor": {active}, "q": {"active"}}},
		"both, cursor of q":  {owner, url.Values{"cursor": {search}, "q": {"a"}, "status": {"active"}}},
		"cursor given twice": {owner, url.Values{"cursor": {plain, plain}}},
	} {
		t.Run(name, func(t *testing.T) {
			c.api.Get(t, programmes+"?"+c.query.Encode()).WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")
		})
	}
	// The limit is not a filter: another page size continues at the same position.
	first := list(t, owner, url.Values{"limit": {"6"}})
	next := list(t, owner, url.Values{"limit": {"1"}, "cursor": {plain}})
	if next.Data[0].ID != first.Data[5].ID {
		t.Error("the cursor does not continue after its page")
	}
}

// New programmes neither repeat nor hide existing ones while a client reads pages.
func TestCursor_StableDuringInserts(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	api := p.In(ws.Workspace, ws.Token)
	add := func(name string) string {
		object := api.JSON(t, http.MethodPost, programmes, map[string]any{"name": name}).Wants(t, http.StatusCreated).
			Object(t)
		id, _ := object["id"].(string)
		return id
	}
	var ids []string
	for range 4 {
		ids = append(ids, add("Before"))
	}
	first := list(t, api, url.Values{"limit": {"2"}})
	add("Meanwhile")
	rest := list(t, api, url.Values{"limit": {"2"}, "cursor": {*first.Meta.NextCursor}})
	for i, one := range append(first.Data, rest.Data...) {
		if one.ID != ids[3-i] {
			t.Errorf("position %d has a different programme than before", i)
		}
	}
}
