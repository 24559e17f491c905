package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/deploy/local/demo"
	"github.com/almonerhq/almoner/e2e/harness"
)

// Spec 2.4, 4.1 and 8, contract section 6: the list and its pages.

// A programme is a record with the field names of the contract.
type programme struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Summary   string    `json:"summary"`
	Status    string    `json:"status"`
	StartsOn  *string   `json:"startsOn"`
	EndsOn    *string   `json:"endsOn"`
	CreatedAt time.Time `json:"createdAt"`
	UpdatedAt time.Time `json:"updatedAt"`
}

type page struct {
	Data []programme `json:"data"`
	Meta struct {
		Count      int     `json:"count"`
		NextCursor *string `json:"nextCursor"`
	} `json:"meta"`
}

// list reads one page of the list.
func list(t *testing.T, api harness.API, query url.Values) page {
	t.Helper()
	answer := api.Get(t, programmes+"?"+query.Encode()).Wants(t, http.StatusOK)
	answer.WantsKeys(t, "data", "meta")
	var out page
	answer.Into(t, &out)
	if out.Data == nil || out.Meta.Count != len(out.Data) {
		t.Fatalf("data is not an array, or meta.count is not its length:\n%s", answer)
	}
	return out
}

// readAllPages follows the cursors to the end and returns the programmes and the sizes of the pages.
func readAllPages(t *testing.T, api harness.API, query url.Values) (all []programme, sizes []int) {
	t.Helper()
	query = maps.Clone(query)
	if query == nil {
		query = url.Values{}
	}
	for range 300 {
		next := list(t, api, query)
		all, sizes = append(all, next.Data...), append(sizes, len(next.Data))
		if next.Meta.NextCursor == nil {
			return all, sizes
		}
		query.Set("cursor", *next.Meta.NextCursor)
	}
	t.Fatal("the pages do not end")
	return nil, nil
}

func mainReader(p *harness.Product) harness.API {
	return p.In(p.Demo.Workspaces.Main, p.Demo.Tokens.Reader)
}

func TestList_PagesContainAllProgrammes(t *testing.T) {
	t.Parallel()
	p := enter(t)
	api := mainReader(p)
	for limit, want := range map[string][]int{
		"":    {50, 50, 50, 50, 30},
		"200": {200, 30},
		"230": {200, 30},
		"999": {200, 30},
		"115": {115, 115},
		"77":  {77, 77, 76},
	} {
		t.Run("limit "+limit, func(t *testing.T) {
			query := url.Values{}
			if limit != "" {
				query.Set("limit", limit)
			}
			all, sizes := readAllPages(t, api, query)
			// "Present only when more pages may follow": a full last page may be followed by an empty one.
			if len(sizes) == len(want)+1 && sizes[len(want)] == 0 {
				sizes = sizes[:len(want)]
			}
			if !slices.Equal(sizes, want) {
				t.Errorf("pages of %v, want %v", sizes, want)
			}
			wantsOrder(t, all)
		})
	}
}

// wantsOrder checks that each programme is listed once, in "order created_at, id, newest first".
func wantsOrder(t *testing.T, all []programme) {
	t.Helper()
	seen := map[string]bool{}
	for i, one := range all {
		if seen[one.ID] {
			t.Fatalf("programme %s is listed twice", one.ID)
		}
		seen[one.ID] = true
		if i == 0 {
			continue
		}
		before := all[i-1]
		if one.CreatedAt.After(before.CreatedAt) || (one.CreatedAt.Equal(before.CreatedAt) && one.ID > before.ID) {
			t.Fatalf("programme %d is not in order", i)
		}
	}
}

func TestList_PageSizeOneKeepsTies(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	for i := range 7 { // all created at the same moment
		p.Database.Exec(
			t,
			`insert into resource.programmes (id, tenant_id, name, status, created_at)
						values ($1, $2, $3, 'active', '2026-03-01T10:00:00Z')`,
			uuid.New(),
			ws.Workspace.ID,
			fmt.Sprint("Tied ", i),
		)
	}
	all, _ := readAllPages(t, p.In(ws.Workspace, ws.Token), url.Values{"limit": {"1"}})
	if len(all) != 7 {
		t.Errorf("%d programmes, want 7", len(all))
	}
	wantsOrder(t, all)
}

func TestList_RecordHasContractFields(t *testing.T) {
	t.Parallel()
	p := enter(t)
	answer := mainReader(p).Get(t, programmes+"?limit=200").Wants(t, http.StatusOK)
	keys := []string{"createdAt", "endsOn", "id", "name", "startsOn", "status", "summary", "updatedAt"}
	date := regexp.MustCompile(`^\d{4}-\d{2}-\d{2}$`)
	for _, entry := range answer.Object(t)["data"].([]any) {
		record := entry.(map[string]any)
		if got := slices.Sorted(maps.Keys(record)); !slices.Equal(got, keys) {
			t.Fatalf("a programme has the keys %v, want %v", got, keys)
		}
		for _, name := range []string{"startsOn", "endsOn"} {
			if text, isText := record[name].(string); record[name] != nil && (!isText || !date.MatchString(text)) {
				t.Errorf("%s is %v", name, record[name])
			}
		}
		for _, name := range []string{"createdAt", "updatedAt"} {
			if text, _ := record[name].(string); text == "" {
				t.Errorf("%s is %v", name, record[name])
			} else if _, err := time.Parse(time.RFC3339Nano, text); err != nil {
				t.Error(err)
			}
		}
		if !slices.Contains([]string{"draft", "active", "completed", "archived"}, record["status"].(string)) {
			t.Errorf("status is %v", record["status"])
		}
	}
}

func TestList_EmptyWorkspace(t *testing.T) {
	t.Parallel()
	p := enter(t)
	answer := p.In(p.Demo.Workspaces.Empty, p.Demo.Tokens.OwnerIn.Empty).Get(t, programmes).Wants(t, http.StatusOK)
	if got := strings.TrimSpace(string(answer.Body)); got != `{"data":[],"meta":{"count":0}}` {
		t.Errorf("the list of an empty workspace is %s", got)
	}
}

func TestList_OnlyOwnWorkspace(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	created := p.In(ws.Workspace, ws.Token).JSON(t, http.MethodPost, programmes, map[string]any{"name": "Only here"}).
		Wants(t, http.StatusCreated)
	all, _ := readAllPages(t, p.In(ws.Workspace, ws.Token), nil)
	if len(all) != 1 || all[0].ID != created.Object(t)["id"] {
		t.Error("the list does not contain exactly the workspace's programme")
	}
	for workspace, token := range map[demo.Workspace]string{
		p.Demo.Workspaces.Main:        p.Demo.Tokens.OwnerIn.Main,
		p.Demo.Workspaces.LLMDisabled: p.Demo.Tokens.OwnerIn.LLMDisabled,
	} {
		others, _ := readAllPages(t, p.In(workspace, token), url.Values{"limit": {"200"}})
		for _, other := range others {
			if other.ID == all[0].ID {
				t.Error("a programme is in another workspace's list")
			}
		}
	}
}

func TestList_Filters(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	api := p.In(ws.Workspace, ws.Token)
	for i, c := range []struct{ name, summary, status string }{
		{"Café Llandudno", "Warm drinks", "active"},
		{"Boat repairs", "at the CAFÉ dock", "draft"},
		{"Choir", "sings 100% of the time_s", "active"},
		{"Straße", "", "archived"},
		{"Garden", "a_b", "completed"},
	} {
		p.Database.Exec(
			t,
			`insert into resource.programmes (id, tenant_id, name, summary, status, created_at)
						values ($1, $2, $3, $4, $5, now() - make_interval(hours => $6))`,
			uuid.New(),
			ws.Workspace.ID,
			c.name,
			c.summary,
			c.status,
			i,
		)
	}
	for query, want := range map[string]string{
		"status=active":       "Café Llandudno, Choir",
		"status=draft":        "Boat repairs",
		"status=completed":    "Garden",
		"status=archived":     "Straße",
		"q=café":              "Café Llandudno, Boat repairs",
		"q=CAFÉ":              "Café Llandudno, Boat repairs",
		"q=dock":              "Boat repairs",
		"q=cHoIr":             "Choir",
		"q=café&status=draft": "Boat repairs",
		"q=nothing+like+this": "",
		"q=100%25":            "Choir",
		"q=%25":               "Choir",
		"q=_":                 "Choir, Garden",
		"q=a_b":               "Garden",
	} {
		t.Run(query, func(t *testing.T) {
			values, err := url.ParseQuery(query)
			if err != nil {
				t.Fatal(err)
			}
			values.Set("limit", "1") // several pages, of which some may be empty
			all, _ := readAllPages(t, api, values)
			var names []string
			for _, one := range all {
				names = append(names, one.Name)
			}
			if got := strings.Join(names, ", "); got != want {
				t.Errorf("%q returns %q, want %q", query, got, want)
			}
		})
	}
}
