package rest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/crypt/seal"
)

// Records that are gone when their page is shown are left out. The other pages have each record once.
func TestCollection_RecordsAreGoneMeanwhile(t *testing.T) {
	t.Parallel()
	cursors, err := NewCursors(seal.NewKeys(bytes.Repeat([]byte{1}, 32)), "test")
	must(t, err)
	type record struct {
		Name string `json:"name"`
	}
	gone := []string{"1", "4", "5", "8"}
	list := Collection[string, record]{
		Name: "names",
		Key:  func(name string) string { return name },
		Show: func(page []string) (shown []record, err error) {
			for _, name := range page {
				if !slices.Contains(gone, name) {
					shown = append(shown, record{name})
				}
			}
			return shown, nil
		},
	}
	for limit := 1; limit <= 9; limit++ {
		var found []string
		for cursor, pages := "", 0; ; pages++ {
			query := url.Values{"limit": {fmt.Sprint(limit)}}
			if cursor != "" {
				query.Set("cursor", cursor)
			}
			w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/?"+query.Encode(), nil)
			all := []string{"0", "1", "2", "3", "4", "5", "6", "7", "8"}
			must(t, list.Write(w, r, cursors, uuid.Nil, all))
			var page struct {
				Data []record
				Meta struct{ NextCursor string }
			}
			if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil {
				t.Fatalf("%v: %s", err, w.Body)
			}
			for _, one := range page.Data {
				found = append(found, one.Name)
			}
			if cursor = page.Meta.NextCursor; cursor == "" || pages > 9 {
				break
			}
		}
		if !slices.Equal(found, []string{"0", "2", "3", "6", "7"}) {
			t.Errorf("%d a page: %q", limit, found)
		}
	}
}
