package client_test

import (
	"iter"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/almonerhq/almoner/shared/client"
)

func TestEvents_FollowsCursors(t *testing.T) {
	var asked []string
	c := against(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path+"?"+r.URL.RawQuery)
		if r.URL.Query().Get("cursor") == "" {
			answer(w, 200, `{"data":[{"sequence":8,"type":"programme.updated","timestamp":"2026-11-01T09:00:00.123456Z",
				"data":{"id":"p","changed":["name","status"]}}],"meta":{"count":1,"nextCursor":"n"}}`)
			return
		}
		answer(w, 200, `{"data":[{"sequence":9,"type":"form.deleted","timestamp":"2026-11-01T09:00:01.000000Z",
			"data":{"id":"f"}}],"meta":{"count":1}}`)
	})
	var all []client.Event
	for one, err := range c.Events.List(t.Context(), 7) {
		must(t, err)
		all = append(all, one)
	}
	if len(all) != 2 || all[0].Sequence != 8 || all[1].Type != "form.deleted" || all[1].Data.ID != "f" ||
		!slices.Equal(all[0].Data.Changed, []string{"name", "status"}) {
		t.Errorf("%+v", all)
	}
	if want := []string{"/v1/events?after=7", "/v1/events?after=7&cursor=n"}; !slices.Equal(asked, want) {
		t.Errorf("%q", asked)
	}
}

func TestPage_ExposesCursor(t *testing.T) {
	c := against(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("cursor") == "n" && r.URL.Query().Get("status") != "" {
			answer(w, 200, `{"data":[{"id":"2"}],"meta":{"count":1}}`)
			return
		}
		answer(w, 200, `{"data":[{"id":"1"}],"meta":{"count":1,"nextCursor":"n"}}`)
	})
	for cursor, want := range map[string]client.Page[client.Programme]{
		"":  {Records: []client.Programme{{ID: "1"}}, Next: "n"},
		"n": {Records: []client.Programme{{ID: "2"}}},
	} {
		got, err := c.Programmes.Page(t.Context(), client.ProgrammeFilter{Status: client.Draft}, cursor)
		if err != nil || got.Next != want.Next || got.Records[0].ID != want.Records[0].ID {
			t.Errorf("%q: %+v, %v, want %+v", cursor, got, err, want)
		}
	}
	sent, err := c.Forms.SubmissionsPage(t.Context(), "f", client.SubmissionFilter{Status: "accepted"}, "n")
	if err != nil || sent.Next != "" || sent.Records[0].ID != "2" {
		t.Errorf("%+v, %v", sent, err)
	}
}

// Records may be long: a program with little memory requests fewer per page (F12).
func TestLists_SendFiltersAndPageSize(t *testing.T) {
	var asked string
	c := against(t, func(w http.ResponseWriter, r *http.Request) {
		asked += r.URL.RequestURI()
		answer(w, 200, `{"data":[],"meta":{"count":0}}`)
	})
	march := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	submissions := func(filter client.SubmissionFilter) bool {
		return isEmpty(c.Forms.Submissions(t.Context(), "f", filter))
	}
	for want, empty := range map[string]func() bool{
		"/v1/programmes/programmes?limit=3": func() bool {
			return isEmpty(c.Programmes.List(t.Context(), client.ProgrammeFilter{PageSize: 3}))
		},
		"/v1/engage/forms?limit=4": func() bool {
			return isEmpty(c.Forms.List(t.Context(), client.FormFilter{PageSize: 4}))
		},
		"/v1/engage/forms": func() bool { return isEmpty(c.Forms.List(t.Context())) },
		"/v1/engage/forms/f/submissions?limit=5": func() bool {
			return submissions(client.SubmissionFilter{PageSize: 5})
		},
		"/v1/engage/forms/f/submissions?createdBefore=2026-04-01T00%3A00%3A00Z&" +
			"createdSince=2026-03-01T00%3A00%3A00Z&status=rejected": func() bool {
			april := march.AddDate(0, 1, 0)
			return submissions(client.SubmissionFilter{Status: "rejected", CreatedSince: march, CreatedBefore: april})
		},
	} {
		if asked = ""; !empty() || asked != want {
			t.Errorf("requested %s, want %s and no record", asked, want)
		}
	}
}

// isEmpty reports whether a list has no record and no error.
func isEmpty[T any](list iter.Seq2[T, error]) bool {
	for range list {
		return false
	}
	return true
}
