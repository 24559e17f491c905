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
func (b *testEnv) withSignInMethods(email string) (user, passkey string) {
	b.t.Helper()
	added := b.values(b.do(b.t.Context(), admin.AddUser{Email: email, Name: "Ada"}))
	user, passkey = b.text(added, "id"), uuid.NewString()
	b.Fixture.Exec(`insert into account.passkeys
		(id, user_id, name, credential_id, public_key, sign_count, aaguid, transports, backup_eligible, backed_up)
		values ($1, $2, 'Laptop', $3, '\x01', 0, '\x01', '{}', false, false)`, passkey, user, []byte(passkey))
	b.Fixture.Exec(
		`insert into account.identities (issuer, subject, user_id) values ($1, $2, $3)`,
		upstream,
		"subject of "+user,
		user,
	)
	b.signIn(user)
	return user, passkey
}

func (b *testEnv) methods(user string) []string {
	b.t.Helper()
	var ids []string
	for _, one := range b.list(b.do(b.t.Context(), admin.ListSignInMethods{User: user})) {
		ids = append(ids, one["id"].(string))
	}
	slices.Sort(ids)
	return ids
}

func (b *testEnv) wantsMethods(what, user string, want ...string) {
	b.t.Helper()
	slices.Sort(want)
	if got := b.methods(user); !slices.Equal(got, want) {
		b.t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestSetPassword_NamesOtherMethodsAndRemovesThemOnRequest(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	user, passkey := b.withSignInMethods("ada@example.org")
	other, otherPasskey := b.withSignInMethods("eve@example.org")
	set := func(alone bool) string {
		t.Helper()
		password := strings.NewReader("correct horse battery staple")
		result, err := b.do(t.Context(), admin.SetPassword{User: user, From: password, RemoveOthers: alone})
		if err != nil {
			t.Fatal(err)
		}
		return result.(admin.Outcome).Sentence
	}
	for _, words := range []string{
		"passkey " + passkey,
		"linked account " + upstream,
		"still sign in",
		"--remove-others",
	} {
		if sentence := set(false); !strings.Contains(sentence, words) {
			t.Errorf("%q lacks %q", sentence, words)
		}
	}
	b.wantsMethods("without the option", user, passkey, upstream)
	if sentence := set(true); !strings.Contains(sentence, "Removed: ") || !strings.Contains(sentence, passkey) ||
		!strings.Contains(sentence, upstream) {
		t.Errorf("%q does not name the removed methods", sentence)
	}
	b.wantsMethods("with the option", user)
	b.wantsMethods("of another user", other, otherPasskey, upstream)
	b.events(audit.PasskeyRemoved, "passkey:"+passkey, 1)
	b.events(audit.IdentityUnlinked, "user:"+user, 1)
	if sentence := set(false); !strings.Contains(sentence, "no other sign-in method") {
		t.Errorf("%q", sentence)
	}
}

// queued records the queued mails.
type queued struct{ messages []mail.Message }

func (q *queued) Add(_ context.Context, _ pgx.Tx, m mail.Message) error {
	q.messages = append(q.messages, m)
	return nil
}

// An operator made these changes, so the mails must not suggest that an attacker did.
func TestMails_SayThatOperatorChangedTheAccount(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	user, passkey := b.withSignInMethods("ada@example.org")
	mails := &queued{}
	b.service.Store.(*postgres.Store).SendMail(mails)
	password := strings.NewReader("correct horse battery staple")
	if _, err := b.do(t.Context(), admin.SetPassword{User: user, From: password}); err != nil {
		t.Fatal(err)
	}
	b.values(b.do(t.Context(), admin.RemoveSignInMethod{User: user, Method: passkey}))
	b.values(b.do(t.Context(), admin.RemoveSignInMethod{User: user, Method: upstream}))
	b.values(b.do(t.Context(), admin.SetEmail{User: user, Email: "ada.okafor@example.org"}))
	var kinds []mail.Kind
	for _, m := range mails.messages {
		kinds = append(kinds, m.Kind)
		if !m.Data.Operator {
			t.Errorf("%s does not say that an operator did it", m.Kind)
		}
	}
	want := []mail.Kind{
		mail.PasswordChanged, mail.PasskeyRemoved, mail.AccountUnlinked, mail.EmailChanged, mail.EmailChanged,
	}
	if !slices.Equal(kinds, want) {
		t.Errorf("mails %v, want %v", kinds, want)
	}
}

func TestRemoveSignInMethod_RemovesOneAndSignsOut(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	user, passkey := b.withSignInMethods("ada@example.org")
	other, otherPasskey := b.withSignInMethods("eve@example.org")
	for what, id := range map[string]string{
		"another user's": otherPasskey,
		"unknown":        uuid.NewString(),
		"none":           "",
		"issuer":         "https://elsewhere.example",
	} {
		result, err := b.do(t.Context(), admin.RemoveSignInMethod{User: user, Method: id})
		b.refused(what, result, err)
	}
	result, err := b.do(t.Context(), admin.RemoveSignInMethod{User: uuid.NewString(), Method: passkey})
	b.refused("an unknown user", result, err)
	result, err = b.do(t.Context(), admin.ListSignInMethods{User: uuid.NewString()})
	b.refused("the list of an unknown user", result, err)
	if b.signedIn(user) != 1 {
		t.Error("a refusal signed the user out")
	}
	b.values(b.do(t.Context(), admin.RemoveSignInMethod{User: "ada@example.org", Method: passkey}))
	b.wantsMethods("after the passkey", user, upstream)
	if b.signedIn(user) != 0 || b.signedIn(other) != 1 {
		t.Error("want only this user signed out")
	}
	b.values(b.do(t.Context(), admin.RemoveSignInMethod{User: user, Method: upstream}))
	b.wantsMethods("after both", user)
	b.Fixture.Exec(`insert into account.authenticators (user_id, secret, last_step) values ($1, '\x01', 1)`, user)
	another := strings.NewReader("four quiet lantern boats")
	if _, err := b.do(t.Context(), admin.SetPassword{User: user, From: another, RemoveOthers: true}); err != nil {
		t.Fatal(err)
	}
	b.wantsMethods("a new password keeps the app", user, admin.AuthenticatorID)
	b.values(b.do(t.Context(), admin.RemoveSignInMethod{User: user, Method: admin.AuthenticatorID}))
	b.wantsMethods("after the app", user)
	b.events(audit.AuthenticatorRemoved, "user:"+user, 1)
	b.wantsMethods("of another user", other, otherPasskey, upstream)
	b.events(audit.PasskeyRemoved, "passkey:"+passkey, 1)
	b.events(audit.IdentityUnlinked, "user:"+user, 1)
}

// A link of an operator is marked as such, because it may remove passkeys that a workspace requires.
func TestResetLink_IsMarkedAsOperatorLink(t *testing.T) {
	b := newTestEnv(t)
	user, _ := b.withSignInMethods("ada@example.org")
	b.service.AppURL = "https://app.example.org"
	b.values(b.do(t.Context(), admin.ResetLink{User: user}))
	if n := b.Count(`select count(*) from account.password_resets where user_id = $1 and by_operator`, user); n != 1 {
		t.Errorf("%d links of an operator", n)
	}
}
