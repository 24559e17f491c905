package client_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
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
	filter := client.ProgrammeFilter{Status: client.Draft}
	first, err := c.Programmes.Page(t.Context(), filter, "")
	if err != nil || first.Next != "n" || first.Records[0].ID != "1" {
		t.Errorf("%+v, %v", first, err)
	}
	second, err := c.Programmes.Page(t.Context(), filter, first.Next)
	if err != nil || second.Next != "" || second.Records[0].ID != "2" {
		t.Errorf("%+v, %v", second, err)
	}
	sent, err := c.Forms.SubmissionsPage(t.Context(), "f", client.SubmissionFilter{Status: "accepted"}, "n")
	if err != nil || sent.Next != "" || sent.Records[0].ID != "2" {
		t.Errorf("%+v, %v", sent, err)
	}
}

func TestError_NamesFields(t *testing.T) {
	c := against(t, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 400, `{"error":{"code":"VALIDATION_ERROR","message":"Not valid.","fields":{
			"name":"A name is required.","endsOn":"Must be a date."}}}`)
	})
	_, err := c.Programmes.Create(t.Context(), client.NewProgramme{})
	if err == nil || !strings.Contains(err.Error(), "Not valid.; endsOn: Must be a date.; name: A name is required.") {
		t.Errorf("%v", err)
	}
}

// Records may be long: a program with little memory requests fewer per page (F12).
func TestLists_UsePageSize(t *testing.T) {
	var asked []string
	c := against(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path+"?"+r.URL.Query().Get("limit"))
		answer(w, 200, `{"data":[],"meta":{"count":0}}`)
	})
	for range c.Programmes.List(t.Context(), client.ProgrammeFilter{PageSize: 3}) {
		t.Error("got a programme")
	}
	for range c.Forms.List(t.Context(), client.FormFilter{PageSize: 4}) {
		t.Error("got a form")
	}
	for range c.Forms.List(t.Context()) {
		t.Error("got a form")
	}
	for range c.Forms.Submissions(t.Context(), "f", client.SubmissionFilter{PageSize: 5}) {
		t.Error("got a submission")
	}
	want := []string{
		"/v1/programmes/programmes?3", "/v1/engage/forms?4", "/v1/engage/forms?", "/v1/engage/forms/f/submissions?5",
	}
	if !slices.Equal(asked, want) {
		t.Errorf("%v", asked)
	}
}

func TestSubmissionFilter_SetsParameters(t *testing.T) {
	var asked url.Values
	c := against(t, func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.Query()
		answer(w, 200, `{"data":[],"meta":{"count":0}}`)
	})
	day := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for range c.Forms.Submissions(t.Context(), "f", client.SubmissionFilter{
		Status:        "rejected",
		CreatedSince:  day,
		CreatedBefore: day.AddDate(0, 1, 0),
	}) {
		t.Error("got a submission")
	}
	if got := asked.Encode(); got != "createdBefore=2026-04-01T00%3A00%3A00Z&createdSince=2026-03-01T00%3A00%3A00Z&"+
		"status=rejected" {
		t.Errorf("%s", got)
	}
}
