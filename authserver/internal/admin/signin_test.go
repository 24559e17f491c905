package admin_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/authserver/internal/mail"
	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
)

const upstream = "https://id.example.org"

// withSignInMethods creates a signed-in user with a passkey and a linked account.
func (b *testEnv) withSignInMethods() (user, email, passkey string) {
	b.t.Helper()
	user, email = b.added()
	passkey = uuid.NewString()
	b.Fixture.Exec(`insert into account.passkeys
		(id, user_id, name, credential_id, public_key, sign_count, aaguid, transports, backup_eligible, backed_up)
		values ($1, $2, 'Laptop', $3, '\x01', 0, '\x01', '{}', false, false)`, passkey, user, []byte(passkey))
	b.Fixture.Exec(`insert into account.identities (issuer, subject, user_id) values ($1, $2, $3)`, upstream,
		"subject of "+user, user)
	b.signIn(user)
	return user, email, passkey
}

func (b *testEnv) wantsMethods(what, user string, want ...string) {
	b.t.Helper()
	var got []string
	for _, one := range b.list(admin.ListSignInMethods{User: user}) {
		got = append(got, one["id"].(string))
	}
	slices.Sort(got)
	slices.Sort(want)
	b.Equal(what, got, want)
}

func TestSetPassword_NamesOtherMethodsAndRemovesThemOnRequest(t *testing.T) {
	b := newTestEnv(t)
	user, _, passkey := b.withSignInMethods()
	other, _, otherPasskey := b.withSignInMethods()
	set := func(alone bool, want ...string) {
		t.Helper()
		password := strings.NewReader("correct horse battery staple")
		sentence := b.do(admin.SetPassword{User: user, From: password, RemoveOthers: alone}).(admin.Outcome).Sentence
		for _, words := range want {
			if !strings.Contains(sentence, words) {
				t.Errorf("%q lacks %q", sentence, words)
			}
		}
	}
	set(false, "passkey "+passkey, "linked account "+upstream, "still sign in", "--remove-others")
	b.wantsMethods("without the option", user, passkey, upstream)
	set(true, "Removed: ", passkey, upstream)
	b.wantsMethods("with the option", user)
	b.wantsMethods("of another user", other, otherPasskey, upstream)
	b.events(audit.PasskeyRemoved, "passkey:"+passkey, 1)
	b.events(audit.IdentityUnlinked, "user:"+user, 1)
	set(false, "no other sign-in method")
}

// queued records the queued mails.
type queued struct{ messages []mail.Message }

func (q *queued) Add(_ context.Context, _ pgx.Tx, m mail.Message) error {
	q.messages = append(q.messages, m)
	return nil
}

// An operator made these changes, so the mails must not suggest that an attacker did.
func TestMails_SayThatOperatorChangedTheAccount(t *testing.T) {
	b := ownTestEnv(t)
	user, _, passkey := b.withSignInMethods()
	mails := &queued{}
	b.service.Store.(*postgres.Store).SendMail(mails)
	b.do(admin.SetPassword{User: user, From: strings.NewReader("correct horse battery staple")})
	b.do(admin.RemoveSignInMethod{User: user, Method: passkey})
	b.do(admin.RemoveSignInMethod{User: user, Method: upstream})
	b.do(admin.SetEmail{User: user, Email: person()})
	var kinds []mail.Kind
	for _, m := range mails.messages {
		kinds = append(kinds, m.Kind)
		if !m.Data.Operator {
			t.Errorf("%s does not say that an operator did it", m.Kind)
		}
	}
	if want := []mail.Kind{
		mail.PasswordChanged, mail.PasskeyRemoved, mail.AccountUnlinked, mail.EmailChanged, mail.EmailChanged,
	}; !slices.Equal(kinds, want) {
		t.Errorf("mails %v, want %v", kinds, want)
	}
}

func TestRemoveSignInMethod_RemovesOneAndSignsOut(t *testing.T) {
	b := newTestEnv(t)
	user, email, passkey := b.withSignInMethods()
	other, _, otherPasskey := b.withSignInMethods()
	b.allRefused(map[string]admin.Command{
		"another user's":              admin.RemoveSignInMethod{User: user, Method: otherPasskey},
		"unknown":                     admin.RemoveSignInMethod{User: user, Method: uuid.NewString()},
		"none":                        admin.RemoveSignInMethod{User: user},
		"issuer":                      admin.RemoveSignInMethod{User: user, Method: "https://elsewhere.example"},
		"an unknown user":             admin.RemoveSignInMethod{User: uuid.NewString(), Method: passkey},
		"the list of an unknown user": admin.ListSignInMethods{User: uuid.NewString()},
	})
	b.wantSignIns("after refusals", user, 1)
	b.do(admin.RemoveSignInMethod{User: email, Method: passkey})
	b.wantsMethods("after the passkey", user, upstream)
	b.wantSignIns("after the passkey", user, 0)
	b.wantSignIns("of another user", other, 1)
	b.do(admin.RemoveSignInMethod{User: user, Method: upstream})
	b.wantsMethods("after both", user)
	b.Fixture.Exec(`insert into account.authenticators (user_id, secret, last_step) values ($1, '\x01', 1)`, user)
	another := strings.NewReader("four quiet lantern boats")
	b.do(admin.SetPassword{User: user, From: another, RemoveOthers: true})
	b.wantsMethods("a new password keeps the app", user, admin.AuthenticatorID)
	b.do(admin.RemoveSignInMethod{User: user, Method: admin.AuthenticatorID})
	b.wantsMethods("after the app", user)
	b.events(audit.AuthenticatorRemoved, "user:"+user, 1)
	b.wantsMethods("of another user", other, otherPasskey, upstream)
	b.events(audit.PasskeyRemoved, "passkey:"+passkey, 1)
	b.events(audit.IdentityUnlinked, "user:"+user, 1)
}

// A link of an operator is marked as such, because it may remove passkeys that a workspace requires.
func TestResetLink_IsMarkedAsOperatorLink(t *testing.T) {
	b := newTestEnv(t)
	user, _, _ := b.withSignInMethods()
	withPages := *b.service
	withPages.AppURL = "https://app.example.org"
	b.service = &withPages
	b.do(admin.ResetLink{User: user})
	b.WantsRows("links of an operator", 1, `account.password_resets where user_id = $1 and by_operator`, user)
}
