package e2e

import (
	"net/http"
	"net/url"
	"slices"
	"testing"
)

// TestUpdatedSince_ReturnsNewAndChangedProgrammes: a client that sends its newest updatedAt gets that record again,
// newer records, and records that were changed since (contract, section 6).
func TestUpdatedSince_ReturnsNewAndChangedProgrammes(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	api := p.In(ws.Workspace, ws.Token)
	changed := create(t, api, map[string]any{"name": "Changed later"})
	untouched := create(t, api, map[string]any{"name": "Untouched"})
	newest := create(t, api, map[string]any{"name": "Newest"})
	since := url.Values{"updatedSince": {newest.UpdatedAt.Format("2006-01-02T15:04:05.000000Z07:00")}}
	wantsNames(t, list(t, api, since).Data, "Newest")

	api.JSON(t, http.MethodPatch, programmes+"/"+changed.ID, map[string]any{"name": "Changed"}).Wants(t, http.StatusOK)
	create(t, api, map[string]any{"name": "Made later"})
	wantsNames(t, list(t, api, since).Data, "Made later", "Newest", "Changed")

	since.Set("updatedSince", untouched.UpdatedAt.Format("2006-01-02"))
	api.Get(t, programmes+"?"+since.Encode()).WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")
}

func wantsNames(t *testing.T, all []programme, want ...string) {
	t.Helper()
	var names []string
	for _, one := range all {
		names = append(names, one.Name)
	}
	if !slices.Equal(names, want) {
		t.Errorf("the list has %v, want %v", names, want)
	}
}
