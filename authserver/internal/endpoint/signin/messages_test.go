package signin_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

var must = testkit.Must

// Each message that the pages show is in messages.json, is complete, and has no other names in braces than those that
// are replaced. The file has no others.
func TestMessages_AreThoseShown(t *testing.T) {
	t.Parallel()
	shown := map[string]bool{
		"identity_unknown": true, "identity_other_account": true, "identity_disabled": true, // verdicts
		"email_confirmed_by_new": true, "email_confirmed_by_current": true,
		"email_stopped_by_new": true, "email_stopped_by_current": true,
		"invitation_accepted": true, "invitation_declined_before": true, "invitation_withdrawn": true,
		"invitation_replaced": true, "invitation_expired": true,
	}
	for _, outcome := range []membership.Outcome{
		membership.RequestSent, membership.RequestSentBefore, membership.TooManyRequests, membership.NoManager,
		membership.AccessGiven, membership.NoMail,
	} {
		shown["access_"+strings.ReplaceAll(string(outcome), " ", "_")] = true
	}
	names, err := filepath.Glob("*.go")
	must(t, err)
	literal := regexp.MustCompile(`(?:tell|message|tellAttempt)\(v, (?:a, )?"([a-z_]+)"[,)]|name = "([a-z_]+)"`)
	for _, name := range names {
		content, err := os.ReadFile(name)
		must(t, err)
		for _, found := range literal.FindAllStringSubmatch(string(content), -1) {
			shown[found[1]+found[2]] = true
		}
	}
	var messages map[string]ui.Message
	content, err := os.ReadFile("messages.json")
	if err == nil {
		err = json.Unmarshal(content, &messages)
	}
	must(t, err)
	if got, want := slices.Sorted(maps.Keys(messages)), slices.Sorted(maps.Keys(shown)); !slices.Equal(got, want) {
		t.Errorf("the file has  %q\nthe pages show %q", got, want)
	}
	filled := strings.NewReplacer("{provider}", "", "{workspace}", "", "{inviter}", "", "{email}", "", "{new}", "")
	for name, m := range messages {
		if m.Status == 0 || m.Heading == "" || m.Text == "" {
			t.Errorf("%s is not complete: %+v", name, m)
		}
		if left := filled.Replace(m.Heading + m.Text + m.Next); strings.ContainsAny(left, "{}") {
			t.Errorf("%s has an unknown name in braces: %s", name, left)
		}
	}
}
