package client_test

import (
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/almonerhq/almoner/shared/client"
)

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
