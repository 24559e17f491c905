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

// unmailed are the actions without a mail, and the reason.
var unmailed = []struct {
	Reason  string
	Actions []audit.Action
}{
	{
		Reason: "A failed attempt changes nothing, and a mail for each would let strangers fill a mailbox. It is on " +
			"the page /settings/security.",
		Actions: []audit.Action{audit.SignInFailed, audit.SignInRefused, audit.GrantRefused},
	},
	{
		Reason: "It takes access away, and gives none to the person who did it.",
		Actions: []audit.Action{
			audit.SignInEnded, audit.SignInOthersEnded, audit.GrantNarrowed,
			audit.UserEmailStopped, audit.InvitationWithdrawn, audit.InvitationDeclined, audit.MemberLeft,
			audit.WebhookDeleted, audit.ClientDeleted, audit.UserDisabled,
		},
	},
	{
		Reason:  "It gives no access and takes none away. The user sees that the access is still missing.",
		Actions: []audit.Action{audit.AccessDeclined},
	},
	{
		Reason:  "It proves again who is signed in, with a factor that the user has.",
		Actions: []audit.Action{audit.SignInProved},
	},
	{
		Reason:  "It changes no access: only a name, or which optional mails are sent.",
		Actions: []audit.Action{audit.UserRenamed, audit.UserMailsChanged},
	},
	{
		Reason: "It concerns a workspace and no person's sign-in. Its members see it in the audit log, and " +
			"connections still need the approval of each user.",
		Actions: []audit.Action{
			audit.ConnectorPolicyChanged, audit.ClientRegistered, audit.ClientChanged, audit.ClientSecretReplaced,
			audit.ConnectionsExported, audit.AuditExported, audit.FormExported, audit.ModuleChanged,
			audit.FeatureChanged, audit.SecondFactorChanged, audit.MemberAdded,
			audit.WebhookEnabled, audit.WebhookSecretReplaced,
		},
	},
	{
		Reason:  "It deletes content of a workspace. Who may do that is on the page of members.",
		Actions: []audit.Action{audit.ProgrammeErased, audit.FormErased, audit.SubmissionErased, audit.SupporterErased},
	},
	{
		Reason: "An operator of the deployment did it, or the service by itself.",
		Actions: []audit.Action{
			audit.OrganisationAdded, audit.WorkspaceAdded, audit.UserAdded, audit.UserEnabled, audit.KeyRotated,
			audit.KeyPromoted, audit.KeyResealed, audit.KeyRemoved, audit.RetentionRun,
		},
	},
}

// TestNotices_EveryActionHasMailOrReason reads the actions from the code.
func TestNotices_EveryActionHasMailOrReason(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(filepath.Join("..", "account", "audit", "actions.go"))
	if err != nil {
		t.Fatal(err)
	}
	rows := map[audit.Action]int{}
	for action, n := range mail.Notices() {
		rows[action]++
		if !slices.Contains(mail.Kinds(), n.Mail) || n.Mail.Optional() && n.ByEvent {
			t.Errorf("%s: %q is no mail, or its recipients can turn it off", action, n.Mail)
		}
		if n.Page == "" && action != audit.UserDeleted {
			t.Errorf("%s has no page", action)
		}
	}
	for _, u := range unmailed {
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
			t.Errorf("%s has %d rows in letters.json and here: give it a mail, or a reason why it has none", a, rows[a])
		}
	}
	if len(rows) != len(actions) || len(actions) < 70 {
		t.Errorf("%d rows, %d actions", len(rows), len(actions))
	}
}
