package rest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/crypt/seal"
)

type writtenPage struct {
	Data []string
	Meta struct {
		Count      int
		NextCursor string
	}
}

func written(t *testing.T, page *Page[string], next string) (a writtenPage, length int) {
	t.Helper()
	recorder := httptest.NewRecorder()
	page.Write(recorder, httptest.NewRequest(http.MethodGet, "/", nil), next)
	must(t, json.Unmarshal(recorder.Body.Bytes(), &a))
	if got := recorder.Result().ContentLength; got != int64(recorder.Body.Len()) {
		t.Errorf("Content-Length %d of %d bytes", got, recorder.Body.Len())
	}
	return a, recorder.Body.Len()
}

func itself(text string) string { return text }

func TestPage_EndsBeforeMaxBytes(t *testing.T) {
	for _, length := range []int{0, 700, 70_000, 1 << 20} {
		record := strings.Repeat("<", length)
		page, taken := NewJSONPage(itself, nil, nil), 0
		for taken < 10_000 && page.Take(record) {
			taken++
		}
		if taken < 10_000 && taken != (MaxPageBytes-9-2048+1)/(length+3) {
			t.Errorf("%d records of %d", taken, length)
		}
		a, size := written(t, page, "x")
		if a.Meta.Count != taken || len(a.Data) != taken || a.Meta.NextCursor != "x" || size > MaxPageBytes {
			t.Errorf("%d of %d records of %d bytes, %d bytes in all", len(a.Data), taken, length, size)
		}
		for _, one := range a.Data {
			if one != record {
				t.Fatal("a record was changed")
			}
		}
	}
}

func TestPage_FirstRecordAlwaysFits(t *testing.T) {
	page := NewJSONPage(itself, nil, nil)
	first, second := page.Take(strings.Repeat("x", MaxPageBytes+1)), page.Take("y")
	if a, _ := written(t, page, ""); !first || second || len(a.Data) != 1 {
		t.Errorf("the first was taken: %t, the second: %t, %d are on the page", first, second, len(a.Data))
	}
}

func TestPage_WithoutRecordsIsAnEmptyList(t *testing.T) {
	recorder := httptest.NewRecorder()
	NewJSONPage(itself, nil, nil).Write(recorder, httptest.NewRequest(http.MethodGet, "/", nil), "")
	if got := recorder.Body.String(); got != `{"data":[],"meta":{"count":0}}`+"\n" {
		t.Errorf("%s", got)
	}
}

func TestPage_EndsEarlyWithoutRoom(t *testing.T) {
	asked := 0
	page := NewJSONPage(itself, nil, func(bytes int) bool {
		asked += bytes
		return asked < 1<<20
	})
	taken := 0
	for taken < 10_000 && page.Take(strings.Repeat("x", 1000)) {
		taken++
	}
	a, size := written(t, page, "x")
	if a.Meta.Count != taken || size < 1<<20 || size > 1<<20+256<<10 {
		t.Errorf("%d records of %d, %d bytes", a.Meta.Count, taken, size)
	}
	page = NewJSONPage(itself, nil, func(int) bool { return false })
	for taken = 0; taken < 100 && page.Take(strings.Repeat("x", 1000)); taken++ {
	}
	if taken != 100 {
		t.Errorf("an ordinary page is cut short after %d records", taken)
	}
}

// Records that are gone when their page is shown are left out. The other pages have each record once.
func TestCollection_RecordsAreGoneMeanwhile(t *testing.T) {
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
			must(t, list.Write(w, r, cursors, uuid.Nil, strings.Split("012345678", "")))
			var page struct {
				Data []record
				Meta struct{ NextCursor string }
			}
			must(t, json.Unmarshal(w.Body.Bytes(), &page))
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
