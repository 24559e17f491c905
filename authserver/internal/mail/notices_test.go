package mail_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/mail"
)

// TestNotices_EveryActionHasMailOrReason reads the actions from the code.
func TestNotices_EveryActionHasMailOrReason(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(filepath.Join("..", "account", "audit", "actions.go"))
	if err != nil {
		t.Fatal(err)
	}
	rows := map[audit.Action]int{}
	for _, n := range mail.Notices() {
		rows[n.Action]++
		if !slices.Contains(mail.Kinds(), n.Mail) || n.Mail.Optional() && n.ByEvent {
			t.Errorf("%s: %q is no mail, or its recipients can turn it off", n.Action, n.Mail)
		}
		if n.Page == "" && n.Action != audit.UserDeleted {
			t.Errorf("%s has no page", n.Action)
		}
	}
	for _, u := range mail.UnmailedActions() {
		for _, a := range u.Actions {
			rows[a]++
			if len(u.Reason) < 20 {
				t.Errorf("%s has neither a mail nor a reason", a)
			}
		}
	}
	var actions []audit.Action
	for _, found := range regexp.MustCompile(`Action\s+= "([^"]+)"`).FindAllStringSubmatch(string(content), -1) {
		actions = append(actions, found[1])
	}
	for _, a := range actions {
		if rows[a] != 1 {
			t.Errorf("%s has %d rows in notices.go: give it a mail, or the reason why it has none", a, rows[a])
		}
	}
	if len(rows) != len(actions) || len(actions) < 70 {
		t.Errorf("%d rows, %d actions", len(rows), len(actions))
	}
}
